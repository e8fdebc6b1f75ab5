/* HEVC, 8 and 10 bit, by x265, which wants planar pictures with 10 bits in the low end.
 * With b B-frames x265 holds back 2 b + 4 pictures; NVENC's clients have buffers for B + lookahead + 3, so b may be below B. */
#include <stdlib.h>
#include <string.h>
#include <x265.h>
#include "shim.h"

typedef struct { Coder base; const x265_api *api; x265_encoder *x; x265_param *p; uint8_t *planes; Asked asked; } Hevc;

static void rates(x265_param *p, const Asked *a) {
    if (a->mode == NV_ENC_PARAMS_RC_CONSTQP) {
        p->rc.rateControlMode = X265_RC_CQP;
        p->rc.qp = (int)a->qp.qpInterP;
        return;
    }
    int kilobits = (int)(a->average / 1000);
    p->rc.rateControlMode = a->quality > 0 || !kilobits ? X265_RC_CRF : X265_RC_ABR;
    p->rc.rfConstant = a->quality > 0 ? a->quality : 23;
    p->rc.bitrate = kilobits;
    p->rc.vbvMaxBitrate = a->mode == NV_ENC_PARAMS_RC_VBR ? (int)(a->peak / 1000) : kilobits;
    p->rc.vbvBufferSize = a->buffer ? (int)(a->buffer / 1000) : p->rc.vbvMaxBitrate;
}

/* One row of samples; `step` 2 takes every second one of a chroma row. P010 keeps its 10 bits in the high end. */
static void row(uint8_t *to, const uint8_t *from, int count, int step, int deep) {
    if (!deep) for (int x = 0; x < count; x++) to[x] = from[x * step];
    else for (int x = 0; x < count; x++) ((uint16_t *)to)[x] = (uint16_t)(((const uint16_t *)from)[x * step] >> 6);
}

static void planar(Hevc *h, const uint8_t *in, size_t pitch, x265_picture *pic) {
    int w = h->asked.width, rows = h->asked.height, deep = h->asked.depth > 8, full = h->asked.chroma444;
    int cw = full ? w : w / 2, ch = full ? rows : rows / 2;
    size_t sample = deep ? 2 : 1, luma = (size_t)w * (size_t)rows * sample, chroma = (size_t)cw * (size_t)ch * sample;
    uint8_t *p[3] = {h->planes, h->planes + luma, h->planes + luma + chroma};
    for (int y = 0; y < rows; y++) row(p[0] + (size_t)(y * w) * sample, in + (size_t)y * pitch, w, 1, deep);
    for (int c = 1; c < 3; c++)
        for (int y = 0; y < ch; y++) {
            const uint8_t *from = in + (size_t)(full ? c * rows + y : rows + y) * pitch + (full ? 0 : (size_t)(c - 1) * sample);
            row(p[c] + (size_t)(y * cw) * sample, from, cw, full ? 1 : 2, deep);
        }
    for (int c = 0; c < 3; c++) pic->planes[c] = p[c], pic->stride[c] = (int)((size_t)(c ? cw : w) * sample);
}

static int encode(Coder *c, const uint8_t *in, size_t pitch, int64_t number, int idr, int intra, Coded *out) {
    Hevc *h = (Hevc *)c;
    x265_picture pic, made;
    h->api->picture_init(h->p, &pic);
    if (in) {
        planar(h, in, pitch, &pic);
        pic.pts = number;
        pic.bitDepth = h->asked.depth;
        pic.sliceType = idr ? X265_TYPE_IDR : intra ? X265_TYPE_I : X265_TYPE_AUTO;
    }
    x265_nal *nals;
    uint32_t count;
    int got = h->api->encoder_encode(h->x, &nals, &count, in ? &pic : NULL, &made);
    if (got <= 0) return got;
    size_t size = 0;
    for (uint32_t i = 0; i < count; i++) size += nals[i].sizeBytes;
    out->data = malloc(size);
    memcpy(out->data, nals[0].payload, size); /* x265 lays the NAL units of a picture end to end */
    out->size = size;
    out->number = made.pts;
    out->type = made.sliceType == X265_TYPE_IDR ? NV_ENC_PIC_TYPE_IDR : IS_X265_TYPE_I(made.sliceType) ? NV_ENC_PIC_TYPE_I
              : IS_X265_TYPE_B(made.sliceType) ? NV_ENC_PIC_TYPE_B : NV_ENC_PIC_TYPE_P;
    return 1;
}

static int headers(Coder *c, uint8_t *data, size_t room) {
    Hevc *h = (Hevc *)c;
    x265_nal *nals;
    uint32_t count;
    int size = h->api->encoder_headers(h->x, &nals, &count);
    if (size < 0 || (size_t)size > room) return -1;
    memcpy(data, nals[0].payload, (size_t)size);
    return size;
}

static int reconfigure(Coder *c, const Asked *a) {
    Hevc *h = (Hevc *)c;
    rates(h->p, a);
    return h->api->encoder_reconfig(h->x, h->p) < 0 ? -1 : 0;
}

static void shut(Coder *c) {
    Hevc *h = (Hevc *)c;
    if (h->x) h->api->encoder_close(h->x);
    if (h->p) h->api->param_free(h->p);
    free(h->planes);
    free(h);
}

Coder *open_hevc(const Asked *a) {
    Hevc *h = calloc(1, sizeof *h);
    if (!h) return NULL;
    h->base = (Coder){encode, headers, reconfigure, shut};
    h->asked = *a;
    h->planes = malloc((size_t)a->width * (size_t)a->height * 6);
    h->api = x265_api_get(a->depth);
    h->p = h->api ? h->api->param_alloc() : NULL;
    if (!h->planes || !h->p) { shut(&h->base); return NULL; }
    h->api->param_default_preset(h->p, "ultrafast", "zerolatency");
    h->p->logLevel = X265_LOG_ERROR;
    h->p->sourceWidth = a->width, h->p->sourceHeight = a->height;
    h->p->internalCsp = a->chroma444 ? X265_CSP_I444 : X265_CSP_I420;
    h->p->fpsNum = (uint32_t)a->rate_num, h->p->fpsDenom = (uint32_t)a->rate_den;
    h->p->bRepeatHeaders = 0, h->p->bAnnexB = 1, h->p->bOpenGOP = 0, h->p->bEmitInfoSEI = 0;
    int room = (a->b_frames + a->lookahead - 1) / 2, b = room < a->b_frames ? room : a->b_frames;
    h->p->frameNumThreads = 1, h->p->bframes = b, h->p->bFrameAdaptive = 0, h->p->bBPyramid = 0;
    h->p->lookaheadDepth = h->p->bframes ? h->p->bframes + 1 : 0;
    h->p->keyframeMax = a->gop, h->p->keyframeMin = a->gop, h->p->scenecutThreshold = 0;
    rates(h->p, a);
    h->x = h->api->encoder_open(h->p);
    if (!h->x) { shut(&h->base); return NULL; }
    return &h->base;
}
