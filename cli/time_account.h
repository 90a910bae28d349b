/* cli/time_account.h: the inputs and the outcome of tally time, between its arithmetic and its report. */
#ifndef CLI_TIME_ACCOUNT_H
#define CLI_TIME_ACCOUNT_H

#include "tally/config.h"
#include "verb.h"

typedef enum tl_time_input {
    TL_TIME_PARAMS,
    TL_TIME_TOKENS,
    TL_TIME_GPUS,
    TL_TIME_MFU,
    TL_TIME_TIME,
    TL_TIME_COUNT
} tl_time_input;

extern const char *const tl_time_names[TL_TIME_COUNT + 1];

typedef struct tl_time {
    tl_time_input solve; /* the one found from the others */
    tl_u128 params, tokens;
    tl_u128 active; /* of params those a token passes, the P of the formula; of a mixture of experts fewer than all */
    int64_t devices;
    double mfu, seconds;
    double peak;  /* FLOP/s of one device */
    double dense; /* the catalogue's dense rate of the named device, 0: not known */
    bool peak_by_hand, here;
    const tl_accelerator *accelerator; /* NULL: not one of the catalogue */
    int precision;
    tl_rate rate;
    double price;         /* of a device-hour, in US dollars */
    char model[128];      /* the MODEL named, or "" */
    char device_name[64]; /* "" when none was named */
    tl_u128 flops;
    double device_hours, amount;
    tl_notes assumptions;
} tl_time;

/* Prints the outcome in the form asked for; returns the exit status. */
int tl_time_report(tl_cli *cli, tl_time *t);

#endif
