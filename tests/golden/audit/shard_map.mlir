module @jit_exchange attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["data"=2, "seq"=2]> {stablehlo.mesh = {axes = [{name = "data", size = 2 : i64}, {name = "seq", size = 2 : i64}]}}
  func.func public @main(%arg0: tensor<16x8xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"seq"}]>}, %arg1: tensor<8x4xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"seq"}]>}) -> (tensor<16x8xbf16> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"seq"}]>}, tensor<16x4xbf16> {jax.result_info = "result[1]", sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}, tensor<bf16> {jax.result_info = "result[2]", sdy.sharding = #sdy.sharding<@mesh, []>}) {
    %0:3 = sdy.manual_computation(%arg0, %arg1) in_shardings=[<@mesh, [{"data"}, {"seq"}]>, <@mesh, [{}, {"seq"}]>] out_shardings=[<@mesh, [{"data"}, {"seq"}]>, <@mesh, [{"data"}, {}]>, <@mesh, []>] manual_axes={"data", "seq"} (%arg2: tensor<8x4xbf16>, %arg3: tensor<8x2xbf16>) {
      %1 = "stablehlo.all_gather"(%arg2) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> : (tensor<8x4xbf16>) -> tensor<8x8xbf16>
      %2 = "stablehlo.all_gather"(%arg3) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> : (tensor<8x2xbf16>) -> tensor<8x4xbf16>
      %3 = stablehlo.dot_general %1, %2, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<8x8xbf16>, tensor<8x4xbf16>) -> tensor<8x4xbf16>
      %4 = "stablehlo.all_reduce"(%3) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
      ^bb0(%arg4: tensor<bf16>, %arg5: tensor<bf16>):
        %14 = stablehlo.add %arg4, %arg5 : tensor<bf16>
        stablehlo.return %14 : tensor<bf16>
      }) : (tensor<8x4xbf16>) -> tensor<8x4xbf16>
      %5 = "stablehlo.reduce_scatter"(%1) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, scatter_dimension = 1 : i64, use_global_device_ids}> ({
      ^bb0(%arg4: tensor<bf16>, %arg5: tensor<bf16>):
        %14 = stablehlo.add %arg4, %arg5 : tensor<bf16>
        stablehlo.return %14 : tensor<bf16>
      }) : (tensor<8x8xbf16>) -> tensor<8x4xbf16>
      %6 = "stablehlo.collective_permute"(%5) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, source_target_pairs = dense<[[0, 1], [1, 0], [2, 3], [3, 2]]> : tensor<4x2xi64>}> : (tensor<8x4xbf16>) -> tensor<8x4xbf16>
      %7 = "stablehlo.all_to_all"(%6) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, concat_dimension = 1 : i64, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, split_count = 2 : i64, split_dimension = 0 : i64}> : (tensor<8x4xbf16>) -> tensor<4x8xbf16>
      %8 = "stablehlo.all_to_all"(%7) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, concat_dimension = 0 : i64, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, split_count = 2 : i64, split_dimension = 1 : i64}> : (tensor<4x8xbf16>) -> tensor<8x4xbf16>
      %c = stablehlo.constant dense<0> : tensor<i32>
      %9:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %8) : tensor<i32>, tensor<8x4xbf16>
      cond {
        %c_1 = stablehlo.constant dense<3> : tensor<i32>
        %14 = stablehlo.compare LT, %iterArg, %c_1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %14 : tensor<i1>
      } do {
        %14 = func.call @closed_call(%iterArg_0) : (tensor<8x4xbf16>) -> tensor<8x4xbf16>
        %c_1 = stablehlo.constant dense<1> : tensor<i32>
        %15 = stablehlo.add %iterArg, %c_1 : tensor<i32>
        stablehlo.return %15, %14 : tensor<i32>, tensor<8x4xbf16>
      }
      %10 = stablehlo.convert %9#1 : (tensor<8x4xbf16>) -> tensor<8x4xf32>
      %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %11 = stablehlo.reduce(%10 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<8x4xf32>, tensor<f32>) -> tensor<f32>
      %12 = stablehlo.convert %11 : (tensor<f32>) -> tensor<bf16>
      %13 = "stablehlo.all_reduce"(%12) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
      ^bb0(%arg4: tensor<bf16>, %arg5: tensor<bf16>):
        %14 = stablehlo.add %arg4, %arg5 : tensor<bf16>
        stablehlo.return %14 : tensor<bf16>
      }) : (tensor<bf16>) -> tensor<bf16>
      sdy.return %9#1, %4, %13 : tensor<8x4xbf16>, tensor<8x4xbf16>, tensor<bf16>
    } : (tensor<16x8xbf16>, tensor<8x4xbf16>) -> (tensor<16x8xbf16>, tensor<16x4xbf16>, tensor<bf16>)
    return %0#0, %0#1, %0#2 : tensor<16x8xbf16>, tensor<16x4xbf16>, tensor<bf16>
  }
  func.func private @closed_call(%arg0: tensor<8x4xbf16>) -> tensor<8x4xbf16> {
    %0 = "stablehlo.collective_permute"(%arg0) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, source_target_pairs = dense<[[0, 1], [1, 0], [2, 3], [3, 2]]> : tensor<4x2xi64>}> : (tensor<8x4xbf16>) -> tensor<8x4xbf16>
    return %0 : tensor<8x4xbf16>
  }
}
