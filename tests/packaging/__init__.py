"""What is shipped: the wheel, the container's steps, the samples."""
