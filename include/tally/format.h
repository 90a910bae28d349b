/* tally/format.h: tensors as text for people, like NumPy's array2string. The library never prints: a text is filled, the
 * caller shows it.
 */
#ifndef TALLY_FORMAT_H
#define TALLY_FORMAT_H

#include "tally/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A text that grows. `= {0}` is an empty one. data is NUL-terminated once something was added; free it with tl_text_free. */
typedef struct tl_text {
    char *data;
    size_t length, capacity;
    const tl_allocator *allocator; /* NULL: malloc */
} tl_text;
tl_status tl_text_add(tl_text *text, const char *bytes, size_t count) TL_MUST_CHECK;
tl_status tl_text_printf(tl_text *text, const char *format, ...) TL_PRINTF(2, 3) TL_MUST_CHECK;
void tl_text_free(tl_text *text);

typedef struct tl_format_options {
    int precision;     /* digits after the point at most; 0 to 17 */
    int64_t threshold; /* of more elements than this only the edges are shown */
    int64_t edge;      /* so many at each end of an axis, at least 1 */
    int width;         /* of a line, at least 1 */
    bool suppress;     /* small numbers as 0.00000 rather than with an exponent */
    char sign;         /* '-': of negative numbers; '+': of all; ' ': a column for it */
} tl_format_options;
/* NumPy's: precision 8, threshold 1000, edge 3, width 75, no suppression, '-'. */
tl_format_options tl_format_defaults(void);

/* Appends the values: "[[1.  2.5]\n [3.  nan]]". As numpy.array2string 1.24 does it: the fewest digits that tell a value
 * from its neighbours in its own format, cut at the precision; an exponent for all where the largest is 1e8 or more, the
 * smallest below 1e-4, or one more than 1000 times the other; points aligned. bf16 and the 8-bit floats, which NumPy lacks,
 * follow the same rules. options NULL: the defaults. On meta: TL_ERR_STATE. Errors stick in the tensor's context. */
tl_status tl_tensor_format(const tl_tensor *t, const tl_format_options *options, tl_text *text) TL_MUST_CHECK;

typedef struct tl_named_tensor {
    const char *name;
    const tl_tensor *tensor;
} tl_named_tensor;
/* Appends a table: name, dtype, shape, strides, offset, bytes of the elements, storage (A, B, … in order of appearance, so
 * that tensors that share one show the same letter) and its bytes; then the total, each storage counted once. Works on meta.
 * A NULL tensor is an error. */
tl_status tl_tensors_summary(const tl_named_tensor *list, int count, tl_text *text, tl_error *error) TL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
