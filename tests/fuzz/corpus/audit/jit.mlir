module @jit_product attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["data"=2, "seq"=2]> {stablehlo.mesh = {axes = [{name = "data", size = 2 : i64}, {name = "seq", size = 2 : i64}]}}
  func.func public @main(%arg0: tensor<16x8xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"seq"}]>}, %arg1: tensor<8x4xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> (tensor<bf16> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, []>}, tensor<16x4xbf16> {jax.result_info = "result[1]", sdy.sharding = #sdy.sharding<@mesh, [{"data", "seq"}, {}]>}) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x8xbf16>, tensor<8x4xbf16>) -> tensor<16x4xbf16>
    %1 = sdy.sharding_constraint %0 <@mesh, [{"data"}, {}]> : tensor<16x4xbf16>
    %2 = stablehlo.convert %1 : (tensor<16x4xbf16>) -> tensor<16x4xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %3 = stablehlo.reduce(%2 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x4xf32>, tensor<f32>) -> tensor<f32>
    %4 = stablehlo.convert %3 : (tensor<f32>) -> tensor<bf16>
    return %4, %1 : tensor<bf16>, tensor<16x4xbf16>
  }
}
