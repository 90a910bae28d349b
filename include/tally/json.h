/* tally/json.h: our own JSON writer. It prints every digit of 128-bit integers, which readers' libraries cannot.
 *
 * Writes into a growing buffer; commas, indentation and escaping (UTF-8 passed through, control characters and
 * invalid bytes escaped) are its business. Misuse (a value without a key inside an object) is an assertion.
 */
#ifndef TALLY_JSON_H
#define TALLY_JSON_H

#include "tally/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_json tl_json;

/* `indent` spaces a level; 0 writes one line. */
tl_json *tl_json_new(const tl_allocator *allocator, int indent);
void tl_json_free(tl_json *json);
/* The text so far, NUL-terminated, owned by json; NULL if an allocation failed meanwhile. */
const char *tl_json_text(const tl_json *json, size_t *length);

void tl_json_object(tl_json *json);
void tl_json_array(tl_json *json);
void tl_json_end(tl_json *json); /* closes the innermost object or array */
void tl_json_key(tl_json *json, const char *key);

void tl_json_string(tl_json *json, const char *text); /* NULL writes null */
void tl_json_integer(tl_json *json, int64_t value);
void tl_json_unsigned(tl_json *json, tl_u128 value);
void tl_json_real(tl_json *json,
                  double value); /* shortest text that reads back the same; NaN and infinity write null */
void tl_json_boolean(tl_json *json, bool value);
void tl_json_null(tl_json *json);

/* key and value in one call. */
void tl_json_put_string(tl_json *json, const char *key, const char *text);
void tl_json_put_integer(tl_json *json, const char *key, int64_t value);
void tl_json_put_unsigned(tl_json *json, const char *key, tl_u128 value);
void tl_json_put_real(tl_json *json, const char *key, double value);
void tl_json_put_boolean(tl_json *json, const char *key, bool value);

#ifdef __cplusplus
}
#endif
#endif
