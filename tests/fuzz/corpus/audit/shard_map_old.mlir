module @jit_exchange attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<16x8xbf16> {mhlo.sharding = "{devices=[2,2]<=[4]}"}, %arg1: tensor<8x4xbf16> {mhlo.sharding = "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}"}) -> (tensor<16x8xbf16> {jax.result_info = "result[0]", mhlo.sharding = "{devices=[2,2]<=[4]}"}, tensor<16x4xbf16> {jax.result_info = "result[1]", mhlo.sharding = "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"}, tensor<bf16> {jax.result_info = "result[2]", mhlo.sharding = "{replicated}"}) {
    %0 = stablehlo.custom_call @Sharding(%arg0) {backend_config = "", mhlo.sharding = "{devices=[2,2]<=[4]}"} : (tensor<16x8xbf16>) -> tensor<16x8xbf16>
    %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {backend_config = "", mhlo.sharding = "{manual}"} : (tensor<16x8xbf16>) -> tensor<8x4xbf16>
    %2 = stablehlo.custom_call @Sharding(%arg1) {backend_config = "", mhlo.sharding = "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}"} : (tensor<8x4xbf16>) -> tensor<8x4xbf16>
    %3 = stablehlo.custom_call @SPMDFullToShardShape(%2) {backend_config = "", mhlo.sharding = "{manual}"} : (tensor<8x4xbf16>) -> tensor<8x2xbf16>
    %4:3 = call @shmap_body(%1, %3) : (tensor<8x4xbf16>, tensor<8x2xbf16>) -> (tensor<8x4xbf16>, tensor<8x4xbf16>, tensor<bf16>)
    %5 = stablehlo.custom_call @Sharding(%4#0) {backend_config = "", mhlo.sharding = "{manual}"} : (tensor<8x4xbf16>) -> tensor<8x4xbf16>
    %6 = stablehlo.custom_call @SPMDShardToFullShape(%5) {backend_config = "", mhlo.sharding = "{devices=[2,2]<=[4]}"} : (tensor<8x4xbf16>) -> tensor<16x8xbf16>
    %7 = stablehlo.custom_call @Sharding(%4#1) {backend_config = "", mhlo.sharding = "{manual}"} : (tensor<8x4xbf16>) -> tensor<8x4xbf16>
    %8 = stablehlo.custom_call @SPMDShardToFullShape(%7) {backend_config = "", mhlo.sharding = "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"} : (tensor<8x4xbf16>) -> tensor<16x4xbf16>
    %9 = stablehlo.custom_call @Sharding(%4#2) {backend_config = "", mhlo.sharding = "{manual}"} : (tensor<bf16>) -> tensor<bf16>
    %10 = stablehlo.custom_call @SPMDShardToFullShape(%9) {backend_config = "", mhlo.sharding = "{replicated}"} : (tensor<bf16>) -> tensor<bf16>
    return %6, %8, %10 : tensor<16x8xbf16>, tensor<16x4xbf16>, tensor<bf16>
  }
  func.func private @shmap_body(%arg0: tensor<8x4xbf16>, %arg1: tensor<8x2xbf16>) -> (tensor<8x4xbf16> {jax.result_info = "[('data',), ('seq',)]"}, tensor<8x4xbf16> {jax.result_info = "[('data',), None]"}, tensor<bf16> {jax.result_info = "[]"}) {
    %0 = "stablehlo.all_gather"(%arg0) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> : (tensor<8x4xbf16>) -> tensor<8x8xbf16>
    %1 = "stablehlo.all_gather"(%arg1) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> : (tensor<8x2xbf16>) -> tensor<8x4xbf16>
    %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<8x8xbf16>, tensor<8x4xbf16>) -> tensor<8x4xbf16>
    %3 = "stablehlo.all_reduce"(%2) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
    ^bb0(%arg2: tensor<bf16>, %arg3: tensor<bf16>):
      %13 = stablehlo.add %arg2, %arg3 : tensor<bf16>
      stablehlo.return %13 : tensor<bf16>
    }) : (tensor<8x4xbf16>) -> tensor<8x4xbf16>
    %4 = "stablehlo.reduce_scatter"(%0) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, scatter_dimension = 1 : i64, use_global_device_ids}> ({
    ^bb0(%arg2: tensor<bf16>, %arg3: tensor<bf16>):
      %13 = stablehlo.add %arg2, %arg3 : tensor<bf16>
      stablehlo.return %13 : tensor<bf16>
    }) : (tensor<8x8xbf16>) -> tensor<8x4xbf16>
    %5 = "stablehlo.collective_permute"(%4) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, source_target_pairs = dense<[[0, 1], [1, 0], [2, 3], [3, 2]]> : tensor<4x2xi64>}> : (tensor<8x4xbf16>) -> tensor<8x4xbf16>
    %6 = "stablehlo.all_to_all"(%5) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, concat_dimension = 1 : i64, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, split_count = 2 : i64, split_dimension = 0 : i64}> : (tensor<8x4xbf16>) -> tensor<4x8xbf16>
    %7 = "stablehlo.all_to_all"(%6) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, concat_dimension = 0 : i64, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, split_count = 2 : i64, split_dimension = 1 : i64}> : (tensor<4x8xbf16>) -> tensor<8x4xbf16>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %8:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %7) : tensor<i32>, tensor<8x4xbf16>
    cond {
      %c_1 = stablehlo.constant dense<3> : tensor<i32>
      %13 = stablehlo.compare LT, %iterArg, %c_1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %13 : tensor<i1>
    } do {
      %13 = func.call @closed_call(%iterArg_0) : (tensor<8x4xbf16>) -> tensor<8x4xbf16>
      %c_1 = stablehlo.constant dense<1> : tensor<i32>
      %14 = stablehlo.add %iterArg, %c_1 : tensor<i32>
      stablehlo.return %14, %13 : tensor<i32>, tensor<8x4xbf16>
    }
    %9 = stablehlo.convert %8#1 : (tensor<8x4xbf16>) -> tensor<8x4xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %10 = stablehlo.reduce(%9 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<8x4xf32>, tensor<f32>) -> tensor<f32>
    %11 = stablehlo.convert %10 : (tensor<f32>) -> tensor<bf16>
    %12 = "stablehlo.all_reduce"(%11) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%arg2: tensor<bf16>, %arg3: tensor<bf16>):
      %13 = stablehlo.add %arg2, %arg3 : tensor<bf16>
      stablehlo.return %13 : tensor<bf16>
    }) : (tensor<bf16>) -> tensor<bf16>
    return %8#1, %3, %12 : tensor<8x4xbf16>, tensor<8x4xbf16>, tensor<bf16>
  }
  func.func private @closed_call(%arg0: tensor<8x4xbf16>) -> tensor<8x4xbf16> {
    %0 = "stablehlo.collective_permute"(%arg0) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, source_target_pairs = dense<[[0, 1], [1, 0], [2, 3], [3, 2]]> : tensor<4x2xi64>}> : (tensor<8x4xbf16>) -> tensor<8x4xbf16>
    return %0 : tensor<8x4xbf16>
  }
}
