/* nvJPEG codes one picture a call. From Python each call that waits lets go of the interpreter's lock and queues for it
   again behind the threads that feed the decoders; here a batch is one call. Compiled at run time by `device/compiled`. */
#include <stddef.h>

typedef struct {
    int (*encode)(void *handle, void *state, void *params, const void *image, int subsampling, int width, int height,
                  void *stream);
    int (*retrieve)(void *handle, void *state, unsigned char *data, size_t *length, void *stream);
    int (*wait)(void *stream);
} Calls;

typedef struct {
    void *handle, *params, *stream;
    void **states;
    int subsampling, width, height, state_count;
} Coder;

typedef struct { unsigned char *planes[4]; size_t pitches[4]; } Image;

enum { ENCODE = 1, RETRIEVE, WAIT, ROOM };

/* Codes `count` pictures, one behind the other into `room` bytes at `data`, and says their lengths.
   Returns 0, or 65536 times what failed plus its status; ROOM where they do not fit. */
int code_batch(const Calls *calls, const Coder *coder, const Image *images, int count, unsigned char *data, size_t room,
               size_t *lengths)
{
    size_t at = 0;
    for (int first = 0; first < count; first += coder->state_count) {
        int rows = count - first < coder->state_count ? count - first : coder->state_count, status;
        for (int i = 0; i < rows; i++)
            if ((status = calls->encode(coder->handle, coder->states[i], coder->params, &images[first + i],
                                        coder->subsampling, coder->width, coder->height, coder->stream)))
                return ENCODE * 65536 + status;
        if ((status = calls->wait(coder->stream)))
            return WAIT * 65536 + status;
        for (int i = 0; i < rows; i++) {
            size_t *length = &lengths[first + i];
            if ((status = calls->retrieve(coder->handle, coder->states[i], NULL, length, coder->stream)))
                return RETRIEVE * 65536 + status;
            if (*length > room - at)
                return ROOM * 65536;
            if ((status = calls->retrieve(coder->handle, coder->states[i], data + at, length, coder->stream)))
                return RETRIEVE * 65536 + status;
            at += *length;
        }
    }
    int status = calls->wait(coder->stream);
    return status ? WAIT * 65536 + status : 0;
}
