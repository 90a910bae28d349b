/* tally/hw.h: accelerators (a const table with sources) and this machine as measured.
 *
 * An unknown device has an unknown peak, never another's. Rates are DENSE. Zero means: not published or not applicable.
 */
#ifndef TALLY_HW_H
#define TALLY_HW_H

#include "tally/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tl_rate {
    TL_RATE_FP64,
    TL_RATE_FP32,
    TL_RATE_TF32,
    TL_RATE_BF16,
    TL_RATE_FP16,
    TL_RATE_FP8,
    TL_RATE_FP4,
    TL_RATE_INT8, /* whole numbers: operations, no FLOPs */
    TL_RATE_COUNT
} tl_rate;

typedef struct tl_accelerator {
    const char *name; /* "H100-SXM5-80GB" */
    const char *vendor;
    int64_t label_bytes;        /* the vendor's label: 80e9 */
    int64_t memory_bytes;       /* capacity of the memory itself where known (80 GiB), else 0 */
    int64_t driver_bytes;       /* what the driver shows (nvidia-smi) where known, else 0 */
    double bandwidth;           /* bytes per second */
    double rate[TL_RATE_COUNT]; /* dense FLOP/s; 0 unknown */
    double sparse_factor;       /* 2 where the vendor also prints a 2:4-sparse figure, else 0 */
    const char *link;           /* "NVLink4" */
    double link_bandwidth;      /* bytes per second, one direction per device */
    int64_t link_domain;        /* devices that share the link */
    double watts;
    const char *source;
    const char *uncertain; /* what to re-check, or "" */
} tl_accelerator;

int tl_accelerator_count(void);
const tl_accelerator *tl_accelerator_at(int index);
/* By name, case-insensitively, with the usual short forms: "H100" is H100-SXM5-80GB, "A100-80G" is A100-SXM4-80GB, "A100-40G" …
 * *note gets what was assumed ("a bare H100 means the SXM5 80 GB part") or NULL. An ambiguous or unknown name is
 * TL_ERR_NOT_FOUND with the nearest names. */
tl_status tl_accelerator_find(const char *name, const tl_accelerator **found, const char **note,
                              tl_error *error) TL_MUST_CHECK;

typedef struct tl_devices {
    int64_t count;
    bool here;                         /* "here": this machine */
    const tl_accelerator *accelerator; /* NULL when here */
    const char *note;
} tl_devices;
/* "8xH100", "H100", "1024xA100-80G", "here", "1xhere". */
tl_status tl_parse_devices(const char *text, tl_devices *devices, tl_error *error) TL_MUST_CHECK;

const char *tl_rate_name(tl_rate rate); /* "fp32", "bf16", … */

#ifdef __cplusplus
}
#endif
#endif
