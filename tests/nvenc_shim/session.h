/* What a session and the handles that it gives out hold. */
#ifndef NVENC_SHIM_SESSION_H
#define NVENC_SHIM_SESSION_H
#include "shim.h"

enum { RING = 512 }; /* pictures that may be inside at once */

typedef struct { uint64_t device; size_t pitch; NV_ENC_BUFFER_FORMAT format; int mapped; } Resource;
typedef struct { int64_t number; } Buffer; /* of the picture it was last sent with; -1: none */

typedef struct {
    void *context, **input, **output; /* pointers to CUstream, as nvEncSetIOCudaStreams takes them */
    Asked asked;
    Coder *coder;
    int hevc, ready, repeat, bare, flushed;
    uint32_t force_idr;
    long hold; /* pictures by which packets come late: lookahead, or a fault */
    int64_t sent, made, got;
    uint8_t *host, head[8192]; /* the picture; parameter sets */
    int head_size;
    Coded coded[RING];
    uint64_t stamps[RING], durations[RING];
    char error[128];
} Session;

NVENCSTATUS say(Session *, NVENCSTATUS, const char *why);
NVENCSTATUS open_session(NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS *, void **);
NVENCSTATUS initialize(void *, NV_ENC_INITIALIZE_PARAMS *);
NVENCSTATUS reconfigure(void *, NV_ENC_RECONFIGURE_PARAMS *);
NVENCSTATUS encode_picture(void *, NV_ENC_PIC_PARAMS *);
NVENCSTATUS lock_bitstream(void *, NV_ENC_LOCK_BITSTREAM *);
NVENCSTATUS unlock_bitstream(void *, NV_ENC_OUTPUT_PTR);
NVENCSTATUS sequence_params(void *, NV_ENC_SEQUENCE_PARAM_PAYLOAD *);
NVENCSTATUS destroy(void *);
#endif
