"""What a checkpoint's files hold: manifest, tensors, plain values, and claims."""
