/* safetensors.c: files to accept or to reject, as MANIFEST.tsv of a folder safetensors-vectors says: a name, "accept",
 * "reject" or "reject:REASON" (the reference reader's word, which ours need not share), and why. Rows of another kind leave
 * the choice to the reader and are reported as not compared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"
#include "tally/safetensors.h"

typedef struct tally {
    int passed, failed, skipped;
} tally;

static void one_row(const char *folder, const char *name, const char *expected, tally *t) {
    char path[8192];
    tl_error error = {0};
    bool accept = strcmp(expected, "accept") == 0, reject = strncmp(expected, "reject", 6) == 0;
    if (!accept && !reject) {
        t->skipped++;
        return;
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    tl_safetensors *file = tl_safetensors_open(path, &error);
    bool there = error.status != TL_ERR_NOT_FOUND && error.status != TL_ERR_IO;
    if (there && (file != NULL) == accept) {
        t->passed++;
    } else {
        t->failed++;
        printf("# %s: %s was expected; %s\n", name, expected, file ? "it was accepted" : error.message);
    }
    tl_safetensors_close(file);
}

bool conformance_safetensors(const char *suites, int *failed) {
    char folder[4200], path[4300], line[4096];
    tally t = {0};
    snprintf(folder, sizeof folder, "%.4096s/safetensors-vectors", suites);
    snprintf(path, sizeof path, "%s/MANIFEST.tsv", folder);
    FILE *manifest = fopen(path, "r");
    if (!manifest)
        return false;
    for (bool first = true; fgets(line, sizeof line, manifest); first = false) {
        char *rest = line, *name = strsep(&rest, "\t\n"), *expected = rest ? strsep(&rest, "\t\n") : NULL;
        if (first && strcmp(name, "file") == 0)
            continue;
        if (expected && !strchr(name, '/'))
            one_row(folder, name, expected, &t);
    }
    fclose(manifest);
    if (t.failed || t.passed == 0)
        printf("not ok safetensors: %d as the manifest says, %d not\n", t.passed, t.failed);
    else
        printf("ok safetensors: %d accepted or rejected as the manifest says\n", t.passed);
    if (t.skipped)
        printf("# safetensors: %d not compared, the manifest leaves them to the reader\n", t.skipped);
    *failed += t.failed + (t.passed == 0);
    return true;
}
