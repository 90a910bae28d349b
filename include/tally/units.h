/* tally/units.h: numbers as people write and read them.
 *
 * SI by default (GB = 1e9) and always labelled; GiB on request. K, M, B (or G), T, P, E are counts.
 * A bare "80G" for memory is refused with a message that names both 80GB and 80GiB.
 */
#ifndef TALLY_UNITS_H
#define TALLY_UNITS_H

#include "tally/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tl_units { TL_UNITS_SI, TL_UNITS_IEC } tl_units;

/* Exact whole counts: "70B", "1.5T", "15e12", "1_000_000", "1,000". Case matters only for "m" (refused: use M)
 * and "1e" (refused as an exponent without digits: use 1E).
 * Not whole, negative, empty, trailing text or > 2^127: an error that quotes the text. */
tl_status tl_parse_count(const char *text, tl_u128 *value, tl_error *error) TL_MUST_CHECK;
/* The same, limited to int64. */
tl_status tl_parse_size(const char *text, int64_t *value, tl_error *error) TL_MUST_CHECK;
/* "80GB" "80GiB" "512MiB" "1e9B" or plain bytes "85899345920"; a bare K/M/G/T suffix is refused, naming both. */
tl_status tl_parse_bytes(const char *text, int64_t *value, tl_error *error) TL_MUST_CHECK;
/* FLOP/s: "989.4e12", "989.4T", "989.4TFLOP/s", "1.979P". Positive and finite. */
tl_status tl_parse_rate(const char *text, double *value, tl_error *error) TL_MUST_CHECK;
/* A plain finite number, e.g. a price or a fraction; must lie within [low, high]. */
tl_status tl_parse_number(const char *text, double low, double high, double *value, tl_error *error) TL_MUST_CHECK;

/* Each writes into `buffer` (at least TL_TEXT bytes) and returns it. Three or four significant digits. */
#define TL_TEXT 64
char *tl_text_count(double value, char *buffer);                 /* "8.03 B" "405.9 B" "1.23 M" "512" */
char *tl_text_bytes(double bytes, tl_units units, char *buffer); /* "61.2 MB" or "58.4 MiB" */
char *tl_text_flops(double flops, char *buffer);                 /* "4.51 TFLOPs"  (a count)   */
char *tl_text_rate(double flop_per_second, char *buffer);        /* "989.4 TFLOP/s" (a rate)  */
char *tl_text_bandwidth(double bytes_per_second, char *buffer);  /* "3.35 TB/s" */
char *tl_text_duration(double seconds, char *buffer); /* "8.70 us" "12.9 ms" "3.2 h" "143.9 days" "17.4 years" */
char *tl_text_grouped(tl_u128 value, char *buffer);   /* "1,557,611,200": every digit */
char *tl_text_power(double value, char *buffer);      /* "6.3e24" */

#ifdef __cplusplus
}
#endif
#endif
