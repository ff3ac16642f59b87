module @m attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["data"=2, "seq"=2], device_ids=[0, 2, 1, 3]>
  func.func public @main(%a: tensor<8x6xf32> {sdy.sharding = #s}) -> tensor<8x6xf32> {mhlo.sharding = "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"} {
    %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"data"}, {"seq"}]>] out_shardings=[<@mesh, [{"data"}, {"seq"}]>] manual_axes={"data", "seq"} (%b: tensor<4x3xf32>) {
      %1 = "stablehlo.collective_permute"(%b) <{source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}> : (tensor<4x3xf32>) -> tensor<4x3xf32>
      sdy.return %1 : tensor<4x3xf32>
    } : (tensor<8x6xf32>) -> tensor<8x6xf32>
    %2 = sdy.reshard %0 <@mesh, [{"data":(1)2}, {}], replicated={"seq"}> : tensor<8x6xf32>
    %3:2 = stablehlo.custom_call @ragged_all_to_all(%2, %2) {replica_groups = dense<"0x00000000000000000100000000000000"> : tensor<1x2xi64>} : (tensor<8x6xf32>, tensor<8x6xf32>) -> (tensor<8x6xf32>, tensor<4xcomplex<f32>>)
    return %2 : tensor<8x6xf32> loc("x")
  }
}
#s = #sdy.sharding<@mesh, [{"data"}p0, {"seq"}]>
