/* A TEST DOUBLE of NVIDIA's libnvidia-encode.so.1: the driver's entry points, encoding on the CPU by x264 and x265. */
#ifndef NVENC_SHIM_H
#define NVENC_SHIM_H
#include <ffnvcodec/nvEncodeAPI.h>
#include <stddef.h>
#include <stdint.h>

/* The header is 11.1; only fields that 12.1 keeps at the same offset are touched. See README.md. */

typedef struct { uint8_t *data; size_t size; int64_t number; NV_ENC_PIC_TYPE type; } Coded;

typedef struct Coder Coder;
typedef struct {
    int width, height, depth, b_frames, lookahead, gop, rate_num, rate_den, chroma444;
    NV_ENC_PARAMS_RC_MODE mode;
    NV_ENC_QP qp;
    double quality; /* 0: none */
    uint32_t average, peak, buffer; /* bit/s, bit/s, bits */
} Asked;

/* `out` has room for one packet; returns packets made (0 or 1), below 0 on failure. picture NULL drains. */
struct Coder {
    int (*encode)(Coder *, const uint8_t *picture, size_t pitch, int64_t number, int idr, int intra, Coded *out);
    int (*headers)(Coder *, uint8_t *data, size_t room);
    int (*reconfigure)(Coder *, const Asked *);
    void (*close)(Coder *);
};
Coder *open_h264(const Asked *);
Coder *open_hevc(const Asked *);

/* cuda.c */
int copy_to_host(void *context, void *stream, uint64_t device, void *host, size_t bytes);
uint64_t nvenc_shim_copies(void), nvenc_shim_bytes(void); /* exported: for the audit of copies */

/* faults.c: what $NVENC_SHIM asks, "name" or "name=number", separated by commas; -1 where it does not */
long fault(const char *name);
#endif
