"""What needs PyTorch: `outrider.torch.convert` makes torch records of NumPy ones."""
