/* A TEST DOUBLE of libcuda.so.1, for machines without a GPU: device memory is host memory, everything is done when the call
 * returns. It has what PyNvVideoCodec's encoder half and gpupipe.device.driver call, and no more. */
#include <ffnvcodec/dynlink_cuda.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, DEEPEST = 1 << 14 };
uint64_t fake_cuda_stream; /* of the last copy to the host, for a test to look at */
static int primary;        /* its address is the only context's handle */
static _Thread_local void *stack[DEEPEST];
static _Thread_local int depth;

int cuInit(unsigned flags) { (void)flags; return SUCCESS; }
int cuDriverGetVersion(int *v) { *v = 13000; return SUCCESS; }
int cuDeviceGetCount(int *n) { *n = 1; return SUCCESS; }
int cuDeviceGet(int *d, int ordinal) { *d = ordinal; return ordinal ? 101 : SUCCESS; }
int cuDeviceGetName(char *name, int room, int d) { (void)d; strncpy(name, "test double of a GPU (host memory)", (size_t)room - 1); return SUCCESS; }
int cuDeviceTotalMem_v2(size_t *bytes, int d) { (void)d; *bytes = (size_t)8 << 30; return SUCCESS; }
int cuMemGetInfo_v2(size_t *left, size_t *all) { *left = *all = (size_t)8 << 30; return SUCCESS; }
int cuDeviceGetAttribute(int *v, int which, int d) { (void)d; *v = which == 75 ? 8 : which == 76 ? 9 : 0; return SUCCESS; }

int cuDevicePrimaryCtxRetain(void **c, int d) { (void)d; *c = &primary; return SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int d) { (void)d; return SUCCESS; }
int cuCtxCreate_v2(void **c, unsigned flags, int d) { (void)flags, (void)d; *c = &primary; if (depth < DEEPEST) stack[depth++] = *c; return SUCCESS; }
int cuCtxDestroy_v2(void *c) { return c ? SUCCESS : INVALID_CONTEXT; }
int cuCtxPushCurrent_v2(void *c) { if (!c || depth == DEEPEST) return INVALID_CONTEXT; stack[depth++] = c; return SUCCESS; }
int cuCtxPopCurrent_v2(void **c) { if (!depth) return INVALID_CONTEXT; depth--; if (c) *c = stack[depth]; return SUCCESS; }
int cuCtxGetCurrent(void **c) { *c = depth ? stack[depth - 1] : NULL; return SUCCESS; }
int cuCtxSetCurrent(void *c) { if (depth) depth--; if (c) stack[depth++] = c; return SUCCESS; }
int cuCtxGetDevice(int *d) { *d = 0; return depth ? SUCCESS : INVALID_CONTEXT; }

int cuStreamCreate(void **s, unsigned flags) { *s = (void *)(uintptr_t)(0x100 + flags); return SUCCESS; }
int cuStreamDestroy_v2(void *s) { (void)s; return SUCCESS; }
int cuStreamGetCtx(void *s, void **c) { (void)s; *c = &primary; return SUCCESS; }
int cuStreamSynchronize(void *s) { (void)s; return SUCCESS; }
int cuStreamWaitEvent(void *s, void *e, unsigned flags) { (void)s, (void)e, (void)flags; return SUCCESS; }
int cuEventCreate(void **e, unsigned flags) { *e = (void *)(uintptr_t)(0x200 + flags); return SUCCESS; }
int cuEventDestroy_v2(void *e) { (void)e; return SUCCESS; }
int cuEventRecord(void *e, void *s) { (void)e, (void)s; return SUCCESS; }
int cuEventSynchronize(void *e) { (void)e; return SUCCESS; }

static int give(uint64_t *p, size_t bytes) { void *m = NULL; *p = posix_memalign(&m, 256, bytes + 256) ? 0 : (uint64_t)(uintptr_t)m; return *p ? SUCCESS : OUT_OF_MEMORY; }
int cuMemAlloc_v2(uint64_t *p, size_t bytes) { return give(p, bytes); }
int cuMemAllocAsync(uint64_t *p, size_t bytes, void *s) { (void)s; return give(p, bytes); }
int cuMemAllocPitch_v2(uint64_t *p, size_t *pitch, size_t width, size_t rows, unsigned element) {
    (void)element;
    *pitch = (width + 511) / 512 * 512; /* wider than a row, as on a GPU: a client that takes rows as packed is found out */
    return give(p, *pitch * rows);
}
int cuMemFree_v2(uint64_t p) { free((void *)(uintptr_t)p); return SUCCESS; }
int cuMemFreeAsync(uint64_t p, void *s) { (void)s; return cuMemFree_v2(p); }
int cuPointerGetAttribute(void *out, int which, uint64_t p) {
    if (which == 1) *(void **)out = &primary;           /* CONTEXT */
    else if (which == 2) *(unsigned *)out = 2;          /* MEMORY_TYPE: device */
    else if (which == 3) *(uint64_t *)out = p;          /* DEVICE_POINTER */
    else if (which == 9) *(int *)out = 0;               /* DEVICE_ORDINAL */
    else return INVALID_VALUE;
    return SUCCESS;
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    memcpy(to, (void *)(uintptr_t)from, bytes);
    fake_cuda_stream = (uint64_t)(uintptr_t)stream;
    return SUCCESS;
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) { memcpy(to, (void *)(uintptr_t)from, bytes); return SUCCESS; }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) { memcpy((void *)(uintptr_t)to, from, bytes); return SUCCESS; }

static uint8_t *place(CUmemorytype kind, const void *host, uint64_t device, size_t pitch, size_t x, size_t y) {
    return (uint8_t *)(kind == CU_MEMORYTYPE_HOST ? (uintptr_t)host : (uintptr_t)device) + y * pitch + x;
}
int cuMemcpy2D_v2(const CUDA_MEMCPY2D *c) {
    for (size_t y = 0; y < c->Height; y++)
        memcpy(place(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstPitch, c->dstXInBytes, c->dstY + y),
               place(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcPitch, c->srcXInBytes, c->srcY + y), c->WidthInBytes);
    return SUCCESS;
}
int cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, void *s) { (void)s; return cuMemcpy2D_v2(c); }

int cuGetErrorName(int status, const char **name) { (void)status; *name = "CUDA_ERROR_OF_THE_TEST_DOUBLE"; return SUCCESS; }
int cuGetErrorString(int status, const char **text) { (void)status; *text = "the test double refuses this"; return SUCCESS; }
