/* tally/axes.h: tensors by the names of their axes: contractions, rearrangements, checked shapes.
 *
 *     scores = tl_einsum(ctx, "batch seq heads dim, batch key heads dim -> batch heads seq key", ((tl_tensor *[]){q, k}), 2);
 *     split = tl_rearrange(x, "b t (h d) -> b h t d", TL_LENGTHS({"h", heads}));
 *     pooled = tl_reduce(x, "b (t 2) d -> b t d", TL_REDUCE_MEAN, TL_NO_LENGTHS);
 *     wide = tl_repeat_axes(k, "b g t d -> b (g r) t d", TL_LENGTHS({"r", tl_dim_of(4)}));
 *
 * Everything here is made of ops (views, products, sums), so that it accounts for itself, has its gradients, and shows a
 * copy where there is one. Names in a pattern become the names of the result's axes, and formulas survive: merging axes
 * multiplies them, splitting divides. Names never decide equality; sizes do.
 *
 * Errors name the axis, its sizes and the place, with a caret below the pattern:
 *     rearrange (model.c:12): axis (h d) is 42528: 42528 not divisible by 21 (h 21)
 *         b (h d) -> b h d
 *           ^~~~~
 */
#ifndef TALLY_AXES_H
#define TALLY_AXES_H

#include "tally/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- einsum ----
 * Operands separated by commas; each is the names of its axes. A name that occurs twice in one operand is its diagonal; one
 * that the output leaves out is summed; `...` stands for any axes, broadcast from the right (sizes equal, or 1).
 *   - Two ways to write: "ij,jk->ik", every letter an axis, as in numpy; or words separated by blanks, "batch seq, seq d ->
 *     batch d". A pattern in which some operand or the output has two words with a blank between them, or a word with a
 *     digit or underscore, is of the second kind, all of it.
 *   - Without "->" the output is `...` and then the names that occur once, in order of their bytes (numpy's rule).
 *   - Named axes must be equal; a 1 is not stretched to fit another size (numpy would).
 *   - Results of words carry the words as axis names; of letters, the names the operands' axes had.
 * Up to 16 operands. They are contracted two at a time, in the order with the fewest FLOPs, then the smallest
 * intermediate results: all orders are compared up to 6 operands, beyond that each step takes the cheapest pair that shares
 * an axis. Orders are kept in the context by pattern and shapes. A contraction is a batched matmul on views; where axes
 * that must be merged do not join in memory the operand is copied, and the ledger shows the copy. Integers, and products
 * that sum nothing, are a broadcast multiplication and a sum. The result has the operands' dtype. (Einstein 1916; numpy.einsum; opt_einsum, Smith & Gray 2018.) */
tl_tensor *tl_einsum_(tl_ctx *ctx, const char *pattern, tl_tensor *const operands[], int n, const char *site);
/* The order for these operands, without running it: pair i contracts pair[i][0] and pair[i][1], which are operands or, from
 * n on, the results of earlier pairs. Gives the number of pairs, n − 1, or −1 and the error sticks. *flops: of the whole,
 * 2 for a multiply-add, 1 for a product that sums nothing. */
int tl_einsum_order_(tl_ctx *ctx, const char *pattern, tl_tensor *const operands[], int n, int pair[][2],
                     tl_u128 *flops, const char *site);

/* ---- einops (Rogozhnikov 2022) ----
 * "left -> right": the axes of the tensor, and of the result. `(a b)` is one axis, a·b long, b running fastest; `1` and `()`
 * are an axis of size 1; `...` any number of axes; in the left side not inside parentheses. Of the axes in
 * parentheses all lengths but one must be given, as name and dim. Names are letters, digits and underscores, and neither
 * start nor end with an underscore. At most 8 axes at any moment. */
typedef struct tl_axis_length {
    const char *name;
    tl_dim dim;
} tl_axis_length;
/* TL_LENGTHS({"h", heads}, {"d", tl_dim_of(64)}) or TL_NO_LENGTHS, as the last argument of the macros below. */
#define TL_LENGTHS(...)                                                                                                \
    (const tl_axis_length[]){__VA_ARGS__}, (int)(sizeof((const tl_axis_length[]){__VA_ARGS__}) / sizeof(tl_axis_length))
#define TL_NO_LENGTHS NULL, 0

/* The same elements, other axes: every name on both sides. A view where it can be, else a copy. */
tl_tensor *tl_rearrange_(tl_tensor *x, const char *pattern, const tl_axis_length *lengths, int n, const char *site);
/* Axes that the right side leaves out are reduced; numbers on the left are unnamed axes: "b (t 2) d -> b t d". A reduction
 * that this build has no op for is refused by name. */
typedef enum tl_reduce_op { TL_REDUCE_SUM, TL_REDUCE_MEAN, TL_REDUCE_MAX, TL_REDUCE_MIN, TL_REDUCE_PROD } tl_reduce_op;
tl_tensor *tl_reduce_(tl_tensor *x, const char *pattern, tl_reduce_op reduction, const tl_axis_length *lengths, int n,
                      const char *site);
/* Axes that only the right side names are new, of the length given (or a number): "h w -> h w 3". A view as long as new axes
 * stay by themselves, a copy where one is merged. */
tl_tensor *tl_repeat_axes_(tl_tensor *x, const char *pattern, const tl_axis_length *lengths, int n, const char *site);

/* Tensors that differ in what `*` stands for ("b * d": any number of axes) as one: those axes flattened and laid side by
 * side. packed[i] gets the shape of `*` in x[i]. n ≤ 16. */
tl_tensor *tl_pack_(tl_tensor *const x[], int n, const char *pattern, tl_shape packed[], const char *site);
/* The reverse: n views (views of a split) with the shapes `packed` in place of `*`. One size in all may be −1: the rest. */
tl_status tl_unpack_(tl_tensor *x, const tl_shape packed[], int n, const char *pattern, tl_tensor *out[],
                     const char *site);

/* ---- checked shapes (as jaxtyping) ----
 *     tl_axes axes = {0};
 *     tl_check_shape(&axes, q, "batch seq heads head_dim");
 *     tl_check_shape(&axes, k, "batch key heads head_dim");    // "k: axis heads is 8, but 12 in q"
 *     tl_check_shape(&axes, w, "(heads head_dim) width");
 * A name is bound to the first size it meets and must have it ever after. A number is that size, `_` any, `...` any axes,
 * `(a b)` a product, of which one factor may be unbound yet. The dims of the handle take the names. */
#define TL_MAX_AXES 32
typedef struct tl_axes {
    int n;
    struct {
        const char *name;
        tl_dim dim;
        const char *tensor; /* where it was bound; borrowed from the caller */
    } axis[TL_MAX_AXES];
} tl_axes;
tl_status tl_check_shape_(tl_axes *axes, tl_tensor *t, const char *tensor, const char *pattern, const char *site);
/* The dim a name is bound to; size −1 if none. */
tl_dim tl_axes_dim(const tl_axes *axes, const char *name);

#define tl_einsum(ctx, pattern, operands, n) tl_einsum_((ctx), (pattern), (operands), (n), TL_HERE)
#define tl_einsum_order(ctx, pattern, operands, n, pair, flops)                                                        \
    tl_einsum_order_((ctx), (pattern), (operands), (n), (pair), (flops), TL_HERE)
#define tl_rearrange(x, pattern, ...) tl_rearrange_((x), (pattern), __VA_ARGS__, TL_HERE)
#define tl_reduce(x, pattern, reduction, ...) tl_reduce_((x), (pattern), (reduction), __VA_ARGS__, TL_HERE)
#define tl_repeat_axes(x, pattern, ...) tl_repeat_axes_((x), (pattern), __VA_ARGS__, TL_HERE)
#define tl_pack(x, n, pattern, packed) tl_pack_((x), (n), (pattern), (packed), TL_HERE)
#define tl_unpack(x, packed, n, pattern, out) tl_unpack_((x), (packed), (n), (pattern), (out), TL_HERE)
#define tl_check_shape(axes, t, pattern) tl_check_shape_((axes), (t), #t, (pattern), TL_HERE)

#ifdef __cplusplus
}
#endif
#endif
