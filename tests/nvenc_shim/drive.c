/* Drives the shim through its function table as NVIDIA's sample NvEncoder does; for test_nvenc_shim.py.
 *
 * drive SHIM h264|hevc 8|10 WIDTH HEIGHT B_FRAMES GOP constqp|cq|vbr|cbr LOOKAHEAD repeat|once [IDR_AT]
 * Raw NV12 or P010 from stdin; to stdout per packet: timestamp u64, picture type u32, size u32, bytes. Codes other than
 * success end it: "CALL STATUS TEXT" on stderr, exit status 1. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "shim.h"

static NV_ENCODE_API_FUNCTION_LIST f;
static void *session;

#define ASK(call) do { NVENCSTATUS s_ = (call); if (s_) fail(#call, s_); } while (0)
static void fail(const char *call, int status) {
    fprintf(stderr, "%.*s %d %s\n", (int)strcspn(call, "("), call, status, session ? f.nvEncGetLastErrorString(session) : "");
    exit(1);
}

static void fetch(void *bitstream) {
    NV_ENC_LOCK_BITSTREAM lock = {.version = NV_ENC_LOCK_BITSTREAM_VER, .outputBitstream = bitstream};
    ASK(f.nvEncLockBitstream(session, &lock));
    uint32_t head[2] = {lock.pictureType, lock.bitstreamSizeInBytes};
    fwrite(&lock.outputTimeStamp, 8, 1, stdout);
    fwrite(head, 4, 2, stdout);
    fwrite(lock.bitstreamBufferPtr, 1, lock.bitstreamSizeInBytes, stdout);
    ASK(f.nvEncUnlockBitstream(session, bitstream));
}

static void configure(char **a, NV_ENC_CONFIG *c) {
    int hevc = !strcmp(a[2], "hevc"), repeat = !strcmp(a[10], "repeat");
    c->version = NV_ENC_CONFIG_VER;
    c->frameIntervalP = atoi(a[6]) + 1, c->gopLength = (uint32_t)atoi(a[7]);
    c->rcParams.constQP = (NV_ENC_QP){18, 20, 15};
    c->rcParams.rateControlMode = !strcmp(a[8], "constqp") ? NV_ENC_PARAMS_RC_CONSTQP
                                : !strcmp(a[8], "cbr") ? NV_ENC_PARAMS_RC_CBR : NV_ENC_PARAMS_RC_VBR;
    if (!strcmp(a[8], "cq")) c->rcParams.targetQuality = 18;
    else c->rcParams.averageBitRate = 4000000, c->rcParams.maxBitRate = 6000000;
    c->rcParams.lookaheadDepth = (uint16_t)atoi(a[9]), c->rcParams.enableLookahead = atoi(a[9]) > 0;
    if (hevc) c->encodeCodecConfig.hevcConfig.repeatSPSPPS = repeat & 1;
    else c->encodeCodecConfig.h264Config.repeatSPSPPS = repeat & 1;
    if (hevc && atoi(a[3]) > 8) c->encodeCodecConfig.hevcConfig.pixelBitDepthMinus8 = 2;
}

int main(int n, char **a) {
    if (n < 11) return 2;
    void *shim = dlopen(a[1], RTLD_NOW);
    if (!shim) { fprintf(stderr, "%s\n", dlerror()); return 2; }
    NVENCSTATUS (*create)(NV_ENCODE_API_FUNCTION_LIST *) = (NVENCSTATUS (*)(NV_ENCODE_API_FUNCTION_LIST *))dlsym(shim, "NvEncodeAPICreateInstance");
    f.version = NV_ENCODE_API_FUNCTION_LIST_VER;
    ASK(create(&f));
    NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS o = {.version = NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS_VER,
        .deviceType = NV_ENC_DEVICE_TYPE_CUDA, .device = &f, .apiVersion = NVENCAPI_VERSION};
    ASK(f.nvEncOpenEncodeSessionEx(&o, &session));
    int deep = atoi(a[3]) > 8, w = atoi(a[4]), h = atoi(a[5]), idr_at = n > 11 ? atoi(a[11]) : -1;
    static NV_ENC_CONFIG config;
    configure(a, &config);
    static NV_ENC_INITIALIZE_PARAMS init;
    init.version = NV_ENC_INITIALIZE_PARAMS_VER, init.encodeConfig = &config, init.enablePTD = 1;
    init.encodeGUID = !strcmp(a[2], "hevc") ? NV_ENC_CODEC_HEVC_GUID : NV_ENC_CODEC_H264_GUID;
    init.presetGUID = NV_ENC_PRESET_P4_GUID, init.tuningInfo = NV_ENC_TUNING_INFO_HIGH_QUALITY;
    init.encodeWidth = (uint32_t)w, init.encodeHeight = (uint32_t)h, init.frameRateNum = 25, init.frameRateDen = 1;
    ASK(f.nvEncInitializeEncoder(session, &init));
    void *stream = (void *)0x42;
    ASK(f.nvEncSetIOCudaStreams(session, &stream, &stream));

    enum { MOST = 64 };
    int buffers = config.frameIntervalP + config.rcParams.lookaheadDepth + 3, delay = buffers - 1, sent = 0, got = 0;
    size_t pitch = (((size_t)w << deep) + 255) / 256 * 256, rows = (size_t)h * 3 / 2;
    void *bitstream[MOST], *mapped[MOST];
    unsigned char *device[MOST];
    NV_ENC_BUFFER_FORMAT format = deep ? NV_ENC_BUFFER_FORMAT_YUV420_10BIT : NV_ENC_BUFFER_FORMAT_NV12;
    for (int i = 0; i < buffers; i++) {
        NV_ENC_CREATE_BITSTREAM_BUFFER b = {.version = NV_ENC_CREATE_BITSTREAM_BUFFER_VER};
        ASK(f.nvEncCreateBitstreamBuffer(session, &b));
        bitstream[i] = b.bitstreamBuffer;
        device[i] = malloc(pitch * rows);
        NV_ENC_REGISTER_RESOURCE r = {.version = NV_ENC_REGISTER_RESOURCE_VER, .width = (uint32_t)w, .height = (uint32_t)h,
            .resourceType = NV_ENC_INPUT_RESOURCE_TYPE_CUDADEVICEPTR, .pitch = (uint32_t)pitch,
            .resourceToRegister = device[i], .bufferFormat = format};
        ASK(f.nvEncRegisterResource(session, &r));
        NV_ENC_MAP_INPUT_RESOURCE m = {.version = NV_ENC_MAP_INPUT_RESOURCE_VER, .registeredResource = r.registeredResource};
        ASK(f.nvEncMapInputResource(session, &m));
        mapped[i] = m.mappedResource;
    }
    for (;; sent++) {
        size_t y = 0;
        while (y < rows && fread(device[sent % buffers] + y * pitch, (size_t)w << deep, 1, stdin)) y++;
        if (y < rows) break;
        NV_ENC_PIC_PARAMS p = {.version = NV_ENC_PIC_PARAMS_VER, .inputBuffer = mapped[sent % buffers], .bufferFmt = format,
            .inputWidth = (uint32_t)w, .inputHeight = (uint32_t)h, .outputBitstream = bitstream[sent % buffers],
            .inputTimeStamp = (uint64_t)sent * 1001 + 7, .pictureStruct = NV_ENC_PIC_STRUCT_FRAME};
        if (sent == idr_at) p.encodePicFlags = NV_ENC_PIC_FLAG_FORCEIDR;
        NVENCSTATUS s = f.nvEncEncodePicture(session, &p);
        if (s && s != NV_ENC_ERR_NEED_MORE_INPUT) fail("f.nvEncEncodePicture", s);
        while (got <= sent - delay) fetch(bitstream[got++ % buffers]);
    }
    NV_ENC_PIC_PARAMS end = {.version = NV_ENC_PIC_PARAMS_VER, .encodePicFlags = NV_ENC_PIC_FLAG_EOS};
    ASK(f.nvEncEncodePicture(session, &end));
    while (got < sent) fetch(bitstream[got++ % buffers]);
    void *second = NULL;
    int status = f.nvEncOpenEncodeSessionEx(&o, &second);
    uint64_t (*copies)(void) = (uint64_t (*)(void))dlsym(shim, "nvenc_shim_copies");
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    fprintf(stderr, "copies %d stream %d second %d\n", (int)copies(), (int)*(uint64_t *)dlsym(cuda, "fake_cuda_stream"), status);
    ASK(f.nvEncDestroyEncoder(session));
    return 0;
}
