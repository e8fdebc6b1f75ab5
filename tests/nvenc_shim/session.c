/* A session: pictures in, packets in decode order out; the part of the function table that has state. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "session.h"

static int sessions;
static long pictures; /* of all sessions since the fault `after` was asked for */

NVENCSTATUS say(Session *s, NVENCSTATUS status, const char *why) {
    if (s) snprintf(s->error, sizeof s->error, "%s", why);
    return status;
}

NVENCSTATUS open_session(NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS *p, void **out) {
    *out = NULL;
    if (fault("device") >= 0) return NV_ENC_ERR_UNSUPPORTED_DEVICE;
    if (fault("memory") >= 0) return NV_ENC_ERR_OUT_OF_MEMORY;
    long most = fault("sessions");
    if (most >= 0 && sessions >= most) return NV_ENC_ERR_OUT_OF_MEMORY; /* what consumer cards say at their limit */
    if (p->deviceType != NV_ENC_DEVICE_TYPE_CUDA || !p->device) return NV_ENC_ERR_INVALID_PARAM;
    Session *s = calloc(1, sizeof *s);
    if (!s) return NV_ENC_ERR_OUT_OF_MEMORY;
    s->context = p->device;
    __atomic_add_fetch(&sessions, 1, __ATOMIC_SEQ_CST);
    *out = s;
    return NV_ENC_SUCCESS;
}

static int same(GUID a, GUID b) { return !memcmp(&a, &b, sizeof a); }

static void read_asked(Session *s, const NV_ENC_INITIALIZE_PARAMS *p, const NV_ENC_CONFIG *c) {
    Asked *a = &s->asked;
    s->hevc = same(p->encodeGUID, NV_ENC_CODEC_HEVC_GUID);
    a->width = (int)p->encodeWidth, a->height = (int)p->encodeHeight;
    a->rate_num = p->frameRateNum ? (int)p->frameRateNum : 25, a->rate_den = p->frameRateDen ? (int)p->frameRateDen : 1;
    a->b_frames = c->frameIntervalP > 1 ? c->frameIntervalP - 1 : 0;
    a->gop = c->frameIntervalP == 0 ? 1 : c->gopLength == NVENC_INFINITE_GOPLENGTH ? 1 << 20 : (int)c->gopLength;
    a->mode = c->rcParams.rateControlMode, a->qp = c->rcParams.constQP;
    a->quality = c->rcParams.targetQuality + c->rcParams.targetQualityLSB / 256.0;
    a->average = c->rcParams.averageBitRate, a->peak = c->rcParams.maxBitRate, a->buffer = c->rcParams.vbvBufferSize;
    a->lookahead = c->rcParams.enableLookahead ? c->rcParams.lookaheadDepth : 0;
    s->hold = a->lookahead + (fault("delay") > 0 ? fault("delay") : 0);
    const NV_ENC_CODEC_CONFIG *k = &c->encodeCodecConfig;
    s->repeat = s->hevc ? k->hevcConfig.repeatSPSPPS : k->h264Config.repeatSPSPPS;
    s->bare = s->hevc ? k->hevcConfig.disableSPSPPS : k->h264Config.disableSPSPPS;
    a->chroma444 = (s->hevc ? k->hevcConfig.chromaFormatIDC : k->h264Config.chromaFormatIDC) == 3;
    a->depth = s->hevc && (k->hevcConfig.pixelBitDepthMinus8 || same(c->profileGUID, NV_ENC_HEVC_PROFILE_MAIN10_GUID)) ? 10 : 8;
}

/* Both structures as they came, for a test that looks which options the wheel reads. */
static void tell(const char *name, const void *from, size_t bytes) {
    fprintf(stderr, "%s ", name);
    for (size_t i = 0; i < bytes; i++) fprintf(stderr, "%02x", ((const uint8_t *)from)[i]);
    fputc('\n', stderr);
}

NVENCSTATUS initialize(void *handle, NV_ENC_INITIALIZE_PARAMS *p) {
    Session *s = handle;
    if (!s || !p || !p->encodeConfig) return say(s, NV_ENC_ERR_INVALID_PTR, "no encodeConfig");
    if (fault("tell") >= 0) tell("initialize", p, sizeof *p), tell("config", p->encodeConfig, sizeof *p->encodeConfig);
    if (fault("preset") >= 0) return say(s, NV_ENC_ERR_UNSUPPORTED_PARAM, "unsupported preset");
    int known = same(p->encodeGUID, NV_ENC_CODEC_H264_GUID) || same(p->encodeGUID, NV_ENC_CODEC_HEVC_GUID);
    if (!known && fault("tell") >= 0) return NV_ENC_SUCCESS; /* AV1, for asking only: not ready for pictures */
    if (!known)
        return say(s, NV_ENC_ERR_UNSUPPORTED_PARAM, "the shim has H.264 and HEVC");
    read_asked(s, p, p->encodeConfig);
    if (s->asked.depth > 8 && fault("depth") >= 0) return say(s, NV_ENC_ERR_UNSUPPORTED_PARAM, "unsupported depth");
    s->ready = 1;
    return NV_ENC_SUCCESS;
}

/* x264 and x265 open with the first picture, whose format tells the depth where the configuration does not. */
static NVENCSTATUS start(Session *s) {
    if (s->coder) return NV_ENC_SUCCESS;
    s->coder = s->hevc ? open_hevc(&s->asked) : open_h264(&s->asked);
    if (!s->coder) return say(s, NV_ENC_ERR_INVALID_PARAM, "x264 or x265 does not open");
    s->head_size = s->coder->headers(s->coder, s->head, sizeof s->head); /* asked once: x265 refuses it while it encodes */
    return s->head_size > 0 ? NV_ENC_SUCCESS : say(s, NV_ENC_ERR_GENERIC, "no headers");
}

NVENCSTATUS reconfigure(void *handle, NV_ENC_RECONFIGURE_PARAMS *p) {
    Session *s = handle;
    NV_ENC_INITIALIZE_PARAMS *i = &p->reInitEncodeParams;
    if (!s || !s->ready || !i->encodeConfig) return NV_ENC_ERR_INVALID_CALL;
    Asked before = s->asked;
    read_asked(s, i, i->encodeConfig);
    if (before.width != s->asked.width || before.height != s->asked.height || before.b_frames != s->asked.b_frames) {
        s->asked = before;
        return say(s, NV_ENC_ERR_INVALID_PARAM, "only rates can change");
    }
    s->asked.depth = before.depth;
    s->force_idr = p->forceIDR;
    return s->coder && s->coder->reconfigure(s->coder, &s->asked) ? NV_ENC_ERR_INVALID_PARAM : NV_ENC_SUCCESS;
}

static NVENCSTATUS keep(Session *s, Coded coded) {
    int first = s->made == 0;
    if (!s->bare && (first || (s->repeat && coded.type == NV_ENC_PIC_TYPE_IDR))) {
        int size = s->head_size;
        uint8_t *all = malloc((size_t)size + coded.size);
        if (!all) return NV_ENC_ERR_OUT_OF_MEMORY;
        memcpy(all, s->head, (size_t)size);
        memcpy(all + size, coded.data, coded.size);
        free(coded.data);
        coded.data = all, coded.size += (size_t)size;
    }
    s->coded[s->made++ % RING] = coded;
    return NV_ENC_SUCCESS;
}

static NVENCSTATUS drain(Session *s) {
    Coded coded;
    s->flushed = 1;
    while (s->coder && s->made < s->sent) {
        if (s->coder->encode(s->coder, NULL, 0, 0, 0, 0, &coded) <= 0) return say(s, NV_ENC_ERR_GENERIC, "flush failed");
        NVENCSTATUS status = keep(s, coded);
        if (status) return status;
    }
    return NV_ENC_SUCCESS;
}

static int deep(NV_ENC_BUFFER_FORMAT f) { return f == NV_ENC_BUFFER_FORMAT_YUV420_10BIT || f == NV_ENC_BUFFER_FORMAT_YUV444_10BIT; }

NVENCSTATUS encode_picture(void *handle, NV_ENC_PIC_PARAMS *p) {
    Session *s = handle;
    if (!s || !s->ready) return NV_ENC_ERR_ENCODER_NOT_INITIALIZED;
    if (p->encodePicFlags & NV_ENC_PIC_FLAG_EOS) return drain(s);
    Resource *r = p->inputBuffer;
    Buffer *b = p->outputBitstream;
    if (!r || !b || !r->mapped) return say(s, NV_ENC_ERR_RESOURCE_NOT_MAPPED, "picture or bitstream is not mapped");
    if (s->sent - s->got >= RING) return say(s, NV_ENC_ERR_NOT_ENOUGH_BUFFER, "bitstreams are not fetched");
    if (fault("frame") >= 0 && s->sent == fault("frame")) return say(s, NV_ENC_ERR_GENERIC, "injected failure");
    if (fault("after") < 0) pictures = 0;
    else if (__atomic_fetch_add(&pictures, 1, __ATOMIC_SEQ_CST) >= fault("after")) return say(s, NV_ENC_ERR_GENERIC, "injected failure");
    if (!s->coder) {
        s->asked.depth = s->hevc && deep(r->format) ? 10 : s->asked.depth;
        s->asked.chroma444 |= r->format == NV_ENC_BUFFER_FORMAT_YUV444 || r->format == NV_ENC_BUFFER_FORMAT_YUV444_10BIT;
        if (s->asked.depth > 8 && fault("depth") >= 0) return say(s, NV_ENC_ERR_UNSUPPORTED_PARAM, "unsupported depth");
    }
    if ((s->asked.depth > 8) != deep(r->format) && s->coder) return say(s, NV_ENC_ERR_INVALID_PARAM, "the depth changed");
    NVENCSTATUS status = start(s);
    if (status) return status;
    size_t rows = (size_t)s->asked.height * (s->asked.chroma444 ? 6 : 3) / 2, bytes = r->pitch * rows;
    if (!s->host && !(s->host = malloc(bytes))) return NV_ENC_ERR_OUT_OF_MEMORY;
    if (copy_to_host(s->context, s->input ? *s->input : NULL, r->device, s->host, bytes))
        return say(s, NV_ENC_ERR_GENERIC, "CUDA copy failed");
    if (fault("slow") > 0) usleep((useconds_t)fault("slow") * 1000);
    s->stamps[s->sent % RING] = p->inputTimeStamp, s->durations[s->sent % RING] = p->inputDuration;
    int idr = (p->encodePicFlags & NV_ENC_PIC_FLAG_FORCEIDR) || s->force_idr, intra = !!(p->encodePicFlags & NV_ENC_PIC_FLAG_FORCEINTRA);
    Coded coded;
    s->force_idr = 0;
    b->number = s->sent;
    int got = s->coder->encode(s->coder, s->host, r->pitch, s->sent++, idr, intra, &coded);
    if (got < 0) return say(s, NV_ENC_ERR_GENERIC, "x264 or x265 failed");
    if (got && (status = keep(s, coded))) return status;
    return s->made == s->sent && !s->hold ? NV_ENC_SUCCESS : NV_ENC_ERR_NEED_MORE_INPUT;
}

NVENCSTATUS lock_bitstream(void *handle, NV_ENC_LOCK_BITSTREAM *p) {
    Session *s = handle;
    Buffer *b = p->outputBitstream;
    if (!s || !b || b->number < 0) return NV_ENC_ERR_INVALID_PARAM;
    if (b->number >= s->made || (!s->flushed && b->number + s->hold >= s->sent))
        return say(s, NV_ENC_ERR_LOCK_BUSY, "not encoded yet"); /* a driver would wait for ever */
    Coded *c = &s->coded[b->number % RING];
    p->frameIdx = (uint32_t)c->number, p->hwEncodeStatus = 2, p->numSlices = 1;
    p->bitstreamSizeInBytes = (uint32_t)c->size, p->bitstreamBufferPtr = c->data;
    p->outputTimeStamp = s->stamps[c->number % RING], p->outputDuration = s->durations[c->number % RING];
    p->pictureType = c->type, p->pictureStruct = NV_ENC_PIC_STRUCT_FRAME;
    return NV_ENC_SUCCESS;
}

NVENCSTATUS unlock_bitstream(void *handle, NV_ENC_OUTPUT_PTR output) {
    Session *s = handle;
    Buffer *b = output;
    if (!s || !b || b->number < 0) return NV_ENC_ERR_INVALID_PARAM;
    free(s->coded[b->number % RING].data);
    s->coded[b->number % RING].data = NULL;
    s->got++;
    b->number = -1;
    return NV_ENC_SUCCESS;
}

NVENCSTATUS sequence_params(void *handle, NV_ENC_SEQUENCE_PARAM_PAYLOAD *p) {
    Session *s = handle;
    if (!s || !s->ready) return NV_ENC_ERR_ENCODER_NOT_INITIALIZED;
    NVENCSTATUS status = start(s);
    if (status) return status;
    if ((size_t)s->head_size > p->inBufferSize) return NV_ENC_ERR_NOT_ENOUGH_BUFFER;
    memcpy(p->spsppsBuffer, s->head, (size_t)s->head_size);
    *p->outSPSPPSPayloadSize = (uint32_t)s->head_size;
    return NV_ENC_SUCCESS;
}

NVENCSTATUS destroy(void *handle) {
    Session *s = handle;
    if (!s) return NV_ENC_ERR_INVALID_PTR;
    if (s->coder) s->coder->close(s->coder);
    for (int i = 0; i < RING; i++) free(s->coded[i].data);
    free(s->host);
    free(s);
    __atomic_sub_fetch(&sessions, 1, __ATOMIC_SEQ_CST);
    return NV_ENC_SUCCESS;
}
