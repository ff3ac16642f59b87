"""The example in PyTorch trains, with the losses of a dense mask."""

from training_example import check_training_is_equal_to_dense


def test_training_is_equal_to_dense():
    check_training_is_equal_to_dense("train_packed_torch.py")
