/* bench/validate.h: the planner beside single-device memory that others measured. */
#ifndef TALLY_BENCH_VALIDATE_H
#define TALLY_BENCH_VALIDATE_H

#include "tally/engine.h"
#include "tally/infer.h"
#include "tally/plan.h"

#include <stdio.h>

/* ---- a table: names of columns, rows of text ---- */
enum { FIELDS = 24, FIELD = 400, LINE = 8192 };
typedef struct table {
    const char *path;
    FILE *file;
    long line; /* of the row read last */
    int columns, fields;
    char name[FIELDS][FIELD], value[FIELDS][FIELD];
} table;
/* All say what is wrong on stderr, with file:line, and return false then. */
bool table_open(table *t, const char *path); /* with its header */
bool table_next(table *t, bool *more);
void table_close(table *t);
/* The value under a column; "" where the row ends before it. A column that the header has not is an error found by
 * table_wants. */
const char *table_get(const table *t, const char *column);
bool table_wants(const table *t, const char *const *columns, int n);
bool table_fail(const table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "1,572,864" or "4"; false with a message naming the column. */
bool table_whole(const table *t, const char *column, int64_t *value);
/* "37.4 GiB", "44.8 GB", or a bare number in `unit` bytes. */
bool table_bytes(const table *t, const char *column, double unit, double *bytes);

/* ---- a row's answer ---- */
typedef struct answer {
    char what[160];       /* the row in words */
    char why[200];        /* not planned: the reason; else "" */
    double planned;       /* bytes */
    double measured;      /* 0: out of memory, or not planned */
    bool oom;             /* the row says it did not fit */
    double needs, device; /* bytes taken of the device, and what it has */
    bool side;            /* a part of a run: shown, and not in the figures */
} answer;
typedef struct report report;
bool report_add(report *r, const answer *a);

/* Each adds the rows of its table; false: an error, said. */
bool validate_torchtune(report *r, const char *path);
bool validate_litgpt(report *r, const char *path);
bool validate_misc(report *r, const char *path);

/* Peak of a plan, or the reason why there is none; false only where memory is out. */
bool plan_peak(const tl_plan_options *o, answer *a, tl_plan *plan);
/* Options that every single-device plan starts from: one device of this name, bf16, AdamW. */
bool plan_start(tl_plan_options *o, const char *model, const char *device, answer *a);
/* What the planned tensors take of the device under PyTorch: its allocator's slack, context and workspaces. */
double taken(double peak);

#endif
