/* cli/document.h: an account to look into: one that was written down, or one made now. Sweep, diff and check all read values by the
 * paths that plan's JSON gives them ("memory.peak_bytes"), so that there is one set of names. */
#ifndef CLI_DOCUMENT_H
#define CLI_DOCUMENT_H

#include "tally/run.h"
#include "verb.h"

typedef struct tl_document {
    tl_run_file *file;
    char title[200]; /* "gpt2 --seq 1024", "runs/a, as measured" */
    bool is_run;     /* its account is ledger.json: planned beside measured */
    int status;      /* of a plan made now: TL_EXIT_VIOLATED where it does not fit */
} tl_document;

/* `what` is a run's folder, a file with the JSON of a plan or a ledger, or a plan's command line in one word:
 * "gpt2 -g A100-80G --seq 1024" ("tally" and "plan" before it may stand or not). An exit status, having said why. */
int tl_document_open(const tl_cli *cli, const char *what, tl_document *document);
void tl_document_close(tl_document *document); /* zeroed: nothing happens */

/* Runs a verb with these words, argv[0] its name, and reads the JSON it would print; `said` (NULL: to stderr) gets what it says when
 * it fails. Exit status as the verb's: TL_EXIT_OK and TL_EXIT_VIOLATED come with a document. */
int tl_document_make(const tl_cli *cli, int argc, char **argv, tl_document *document, char said[1024]);

/* "flops.per_step" is missing: the nearest path there is, or NULL. `buffer` holds it. */
const char *tl_document_nearest(const tl_document *document, const char *path, char buffer[160]);

/* Calls `each` for every number, flag and text, in the document's order. False as soon as `each` says so. */
typedef bool tl_document_each_leaf(void *user, const char *path, tl_run_value kind);
bool tl_document_each(const tl_document *document, tl_document_each_leaf *each, void *user);

/* Whether a value of that path is a number of bytes. */
bool tl_document_is_bytes(const char *path);
/* The value for people, by what its name says it is: bytes, FLOPs, seconds, a share. */
const char *tl_document_text(const tl_cli *cli, const char *path, double value, char text[TL_TEXT]);

#endif
