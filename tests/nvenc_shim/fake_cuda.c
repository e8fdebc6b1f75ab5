/* A TEST DOUBLE of libcuda.so.1 for the CPU harness only: device memory is host memory, streams are in order. */
#include <stdint.h>
#include <string.h>

uint64_t fake_cuda_stream; /* the stream of the last copy, for the test to look at */

int cuCtxPushCurrent_v2(void *c) { return c ? 0 : 201; }
int cuCtxPopCurrent_v2(void **c) { *c = 0; return 0; }
int cuStreamCreate(void **s, unsigned flags) { *s = (void *)(uintptr_t)(0x100 + flags); return 0; }
int cuStreamSynchronize(void *s) { (void)s; return 0; }
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    memcpy(to, (void *)(uintptr_t)from, bytes);
    fake_cuda_stream = (uint64_t)(uintptr_t)stream;
    return 0;
}
