"""Everything CUDA: the backend, the device, the ring modulo N^2 and its kernels."""
