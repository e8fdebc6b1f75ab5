/* H.264, 8 bit, by x264. Fixed B-frames and one thread: it holds back no more pictures than NVENC does. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <stdint.h>
#include <x264.h>
#include "shim.h"

typedef struct { Coder base; x264_t *x; x264_param_t p; } H264;

static void rates(x264_param_t *p, const Asked *a) {
    if (a->mode == NV_ENC_PARAMS_RC_CONSTQP) {
        p->rc.i_rc_method = X264_RC_CQP;
        p->rc.i_qp_constant = (int)a->qp.qpInterP;
        p->rc.f_ip_factor = (float)pow(2, ((double)a->qp.qpInterP - a->qp.qpIntra) / 6);
        p->rc.f_pb_factor = (float)pow(2, ((double)a->qp.qpInterB - a->qp.qpInterP) / 6);
        return;
    }
    int kilobits = (int)(a->average / 1000);
    p->rc.i_rc_method = a->quality > 0 || !kilobits ? X264_RC_CRF : X264_RC_ABR;
    p->rc.f_rf_constant = a->quality > 0 ? (float)a->quality : 23;
    p->rc.i_bitrate = kilobits;
    p->rc.i_vbv_max_bitrate = a->mode == NV_ENC_PARAMS_RC_VBR ? (int)(a->peak / 1000) : kilobits;
    p->rc.i_vbv_buffer_size = a->buffer ? (int)(a->buffer / 1000) : p->rc.i_vbv_max_bitrate;
}

static int encode(Coder *c, const uint8_t *in, size_t pitch, int64_t number, int idr, int intra, Coded *out) {
    H264 *h = (H264 *)c;
    int rows = h->p.i_height, plane444 = h->p.i_csp == X264_CSP_I444;
    x264_picture_t pic, made;
    x264_picture_init(&pic);
    if (in) {
        pic.img.i_csp = h->p.i_csp;
        pic.img.i_plane = plane444 ? 3 : 2;
        for (int i = 0; i < pic.img.i_plane; i++) {
            pic.img.plane[i] = (uint8_t *)in + (size_t)i * pitch * (size_t)rows;
            pic.img.i_stride[i] = (int)pitch;
        }
        pic.i_pts = number;
        pic.i_type = idr ? X264_TYPE_IDR : intra ? X264_TYPE_I : X264_TYPE_AUTO;
    } else if (!x264_encoder_delayed_frames(h->x)) return 0;
    x264_nal_t *nals;
    int count, size;
    do size = x264_encoder_encode(h->x, &nals, &count, in ? &pic : NULL, &made);
    while (!in && !size && x264_encoder_delayed_frames(h->x));
    if (size <= 0) return size;
    out->data = malloc((size_t)size);
    memcpy(out->data, nals[0].p_payload, (size_t)size);
    out->size = (size_t)size;
    out->number = made.i_pts;
    out->type = made.b_keyframe ? NV_ENC_PIC_TYPE_IDR : IS_X264_TYPE_I(made.i_type) ? NV_ENC_PIC_TYPE_I
              : IS_X264_TYPE_B(made.i_type) ? NV_ENC_PIC_TYPE_B : NV_ENC_PIC_TYPE_P;
    return 1;
}

static int headers(Coder *c, uint8_t *data, size_t room) {
    x264_nal_t *nals;
    int count, at = 0;
    if (x264_encoder_headers(((H264 *)c)->x, &nals, &count) < 0) return -1;
    for (int i = 0; i < count; i++) {
        if (nals[i].i_type == NAL_SEI) continue;
        if ((size_t)(at + nals[i].i_payload) > room) return -1;
        memcpy(data + at, nals[i].p_payload, (size_t)nals[i].i_payload);
        at += nals[i].i_payload;
    }
    return at;
}

static int reconfigure(Coder *c, const Asked *a) {
    H264 *h = (H264 *)c;
    rates(&h->p, a);
    return x264_encoder_reconfig(h->x, &h->p);
}

static void shut(Coder *c) {
    x264_encoder_close(((H264 *)c)->x);
    free(c);
}

Coder *open_h264(const Asked *a) {
    H264 *h = calloc(1, sizeof *h);
    if (!h) return NULL;
    h->base = (Coder){encode, headers, reconfigure, shut};
    x264_param_default_preset(&h->p, "veryfast", NULL);
    h->p.i_log_level = X264_LOG_ERROR;
    h->p.i_width = a->width, h->p.i_height = a->height;
    h->p.i_csp = a->chroma444 ? X264_CSP_I444 : X264_CSP_NV12;
    h->p.i_fps_num = (uint32_t)a->rate_num, h->p.i_fps_den = (uint32_t)a->rate_den;
    h->p.b_vfr_input = 0, h->p.b_repeat_headers = 0, h->p.b_annexb = 1, h->p.b_open_gop = 0;
    h->p.i_threads = 1, h->p.i_sync_lookahead = 0, h->p.rc.i_lookahead = 0, h->p.rc.b_mb_tree = 0;
    h->p.i_bframe = a->b_frames, h->p.i_bframe_adaptive = X264_B_ADAPT_NONE, h->p.i_bframe_pyramid = 0;
    h->p.i_keyint_max = a->gop, h->p.i_keyint_min = a->gop > 1 ? a->gop / 2 : 1, h->p.i_scenecut_threshold = 0;
    rates(&h->p, a);
    h->x = x264_encoder_open(&h->p);
    if (!h->x) { free(h); return NULL; }
    return &h->base;
}
