// A product of two matrices and a sum, as StableHLO text:
//   tessera compile examples/product.mlir --target v6e:1x1
module @product {
  func.func @main(%a: tensor<512x256xbf16>, %b: tensor<256x128xbf16>,
                  %c: tensor<512x128xf32>) -> tensor<512x128xf32> {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
        : (tensor<512x256xbf16>, tensor<256x128xbf16>) -> tensor<512x128xf32>
    %1 = stablehlo.add %0, %c : tensor<512x128xf32>
    return %1 : tensor<512x128xf32>
  }
}
