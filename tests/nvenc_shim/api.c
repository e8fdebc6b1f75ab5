/* The two exported entry points, the function table, and the calls that only ask. */
#include <stdlib.h>
#include <string.h>
#include "session.h"

#define EXPORT __attribute__((visibility("default")))
#define COUNT(list) ((uint32_t)(sizeof(list) / sizeof *(list)))

static GUID codecs[2], presets[7];

static void lists(void) {
    codecs[0] = NV_ENC_CODEC_H264_GUID, codecs[1] = NV_ENC_CODEC_HEVC_GUID;
    GUID all[7] = {NV_ENC_PRESET_P1_GUID, NV_ENC_PRESET_P2_GUID, NV_ENC_PRESET_P3_GUID, NV_ENC_PRESET_P4_GUID,
                   NV_ENC_PRESET_P5_GUID, NV_ENC_PRESET_P6_GUID, NV_ENC_PRESET_P7_GUID};
    memcpy(presets, all, sizeof all);
}

static NVENCSTATUS codec_count(void *s, uint32_t *n) { (void)s; *n = COUNT(codecs); return NV_ENC_SUCCESS; }
static NVENCSTATUS preset_count(void *s, GUID g, uint32_t *n) { (void)s, (void)g; *n = COUNT(presets); return NV_ENC_SUCCESS; }

static NVENCSTATUS give(const GUID *from, uint32_t have, GUID *to, uint32_t room, uint32_t *n) {
    *n = have < room ? have : room;
    memcpy(to, from, *n * sizeof *to);
    return NV_ENC_SUCCESS;
}
static NVENCSTATUS codec_guids(void *s, GUID *to, uint32_t room, uint32_t *n) { (void)s; return give(codecs, COUNT(codecs), to, room, n); }
static NVENCSTATUS preset_guids(void *s, GUID g, GUID *to, uint32_t room, uint32_t *n) { (void)s, (void)g; return give(presets, COUNT(presets), to, room, n); }

static NVENCSTATUS caps(void *s, GUID codec, NV_ENC_CAPS_PARAM *p, int *value) {
    (void)s;
    int hevc = !memcmp(&codec, &codecs[1], sizeof codec);
    if (!hevc && memcmp(&codec, &codecs[0], sizeof codec)) {
        if (fault("tell") < 0) return NV_ENC_ERR_UNSUPPORTED_PARAM;
        hevc = 1; /* AV1, for asking only */
    }
    switch (p->capsToQuery) {
        case NV_ENC_CAPS_NUM_MAX_BFRAMES: *value = 4; break;
        case NV_ENC_CAPS_SUPPORTED_RATECONTROL_MODES: *value = NV_ENC_PARAMS_RC_VBR | NV_ENC_PARAMS_RC_CBR; break;
        case NV_ENC_CAPS_WIDTH_MAX: case NV_ENC_CAPS_HEIGHT_MAX: *value = hevc ? 8192 : 4096; break;
        case NV_ENC_CAPS_WIDTH_MIN: case NV_ENC_CAPS_HEIGHT_MIN: *value = 64; break;
        case NV_ENC_CAPS_SUPPORT_10BIT_ENCODE: *value = hevc && fault("depth") < 0; break;
        case NV_ENC_CAPS_SUPPORT_YUV444_ENCODE: case NV_ENC_CAPS_SUPPORT_LOOKAHEAD: case NV_ENC_CAPS_SUPPORT_CABAC:
        case NV_ENC_CAPS_SUPPORT_DYN_BITRATE_CHANGE: case NV_ENC_CAPS_SUPPORT_CUSTOM_VBV_BUF_SIZE:
        case NV_ENC_CAPS_NUM_ENCODER_ENGINES: *value = 1; break;
        default: *value = 0;
    }
    return NV_ENC_SUCCESS;
}

static NVENCSTATUS preset_config_ex(void *s, GUID codec, GUID preset, NV_ENC_TUNING_INFO t, NV_ENC_PRESET_CONFIG *p) {
    (void)s, (void)codec, (void)preset, (void)t;
    if (fault("preset") >= 0) return NV_ENC_ERR_UNSUPPORTED_PARAM;
    p->presetCfg.gopLength = 250, p->presetCfg.frameIntervalP = 1;
    p->presetCfg.rcParams.rateControlMode = NV_ENC_PARAMS_RC_CONSTQP;
    p->presetCfg.rcParams.constQP = (NV_ENC_QP){28, 31, 25};
    return NV_ENC_SUCCESS;
}
static NVENCSTATUS preset_config(void *s, GUID c, GUID g, NV_ENC_PRESET_CONFIG *p) { return preset_config_ex(s, c, g, 0, p); }

static NVENCSTATUS register_resource(void *s, NV_ENC_REGISTER_RESOURCE *p) {
    if (p->resourceType != NV_ENC_INPUT_RESOURCE_TYPE_CUDADEVICEPTR) return say(s, NV_ENC_ERR_INVALID_PARAM, "only CUDA pointers");
    Resource *r = calloc(1, sizeof *r);
    if (!r) return NV_ENC_ERR_OUT_OF_MEMORY;
    *r = (Resource){(uint64_t)(uintptr_t)p->resourceToRegister, p->pitch, p->bufferFormat, 0};
    p->registeredResource = r;
    return NV_ENC_SUCCESS;
}
static NVENCSTATUS unregister_resource(void *s, NV_ENC_REGISTERED_PTR r) { (void)s; free(r); return NV_ENC_SUCCESS; }

static NVENCSTATUS map(void *s, NV_ENC_MAP_INPUT_RESOURCE *p) {
    Resource *r = p->registeredResource;
    if (!r) return say(s, NV_ENC_ERR_RESOURCE_NOT_REGISTERED, "not registered");
    r->mapped = 1;
    p->mappedResource = r, p->mappedBufferFmt = r->format;
    return NV_ENC_SUCCESS;
}
static NVENCSTATUS unmap(void *s, NV_ENC_INPUT_PTR r) { (void)s; ((Resource *)r)->mapped = 0; return NV_ENC_SUCCESS; }

static NVENCSTATUS create_bitstream(void *s, NV_ENC_CREATE_BITSTREAM_BUFFER *p) {
    (void)s;
    Buffer *b = malloc(sizeof *b);
    if (!b) return NV_ENC_ERR_OUT_OF_MEMORY;
    b->number = -1;
    p->bitstreamBuffer = b;
    return NV_ENC_SUCCESS;
}
static NVENCSTATUS destroy_bitstream(void *s, NV_ENC_OUTPUT_PTR b) { (void)s; free(b); return NV_ENC_SUCCESS; }

static NVENCSTATUS streams(void *handle, NV_ENC_CUSTREAM_PTR in, NV_ENC_CUSTREAM_PTR out) {
    Session *s = handle;
    s->input = in, s->output = out;
    return NV_ENC_SUCCESS;
}
static const char *last_error(void *s) { return s ? ((Session *)s)->error : ""; }

/* Obsolete, but the wheel looks whether it is there. */
static NVENCSTATUS open_plainly(void *device, uint32_t type, void **out) { (void)device, (void)type, (void)out; return NV_ENC_ERR_UNIMPLEMENTED; }

EXPORT NVENCSTATUS NvEncodeAPIGetMaxSupportedVersion(uint32_t *version) {
    *version = fault("api") == 13 ? 13 << 4 : 12 << 4 | 1; /* 12.1: the wheel then loads its _121 module */
    return NV_ENC_SUCCESS;
}

EXPORT NVENCSTATUS NvEncodeAPICreateInstance(NV_ENCODE_API_FUNCTION_LIST *f) {
    if (!f) return NV_ENC_ERR_INVALID_PTR;
    lists();
    f->nvEncOpenEncodeSession = open_plainly;
    f->nvEncOpenEncodeSessionEx = open_session, f->nvEncInitializeEncoder = initialize, f->nvEncDestroyEncoder = destroy;
    f->nvEncGetEncodeGUIDCount = codec_count, f->nvEncGetEncodeGUIDs = codec_guids, f->nvEncGetEncodeCaps = caps;
    f->nvEncGetEncodePresetCount = preset_count, f->nvEncGetEncodePresetGUIDs = preset_guids;
    f->nvEncGetEncodePresetConfig = preset_config, f->nvEncGetEncodePresetConfigEx = preset_config_ex;
    f->nvEncRegisterResource = register_resource, f->nvEncUnregisterResource = unregister_resource;
    f->nvEncMapInputResource = map, f->nvEncUnmapInputResource = unmap;
    f->nvEncCreateBitstreamBuffer = create_bitstream, f->nvEncDestroyBitstreamBuffer = destroy_bitstream;
    f->nvEncEncodePicture = encode_picture, f->nvEncLockBitstream = lock_bitstream, f->nvEncUnlockBitstream = unlock_bitstream;
    f->nvEncGetSequenceParams = sequence_params, f->nvEncReconfigureEncoder = reconfigure;
    f->nvEncSetIOCudaStreams = streams, f->nvEncGetLastErrorString = last_error;
    return NV_ENC_SUCCESS;
}
