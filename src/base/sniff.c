/* base/sniff.c: marks at the beginning of files that are often met in the place of others. */
#include "base/sniff.h"

#include <string.h>

bool tl_sniff_word(const void *bytes, size_t length, const char *word) {
    const char *text = bytes;
    size_t i = 0;
    while (i < length && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r'))
        i++;
    for (; *word != '\0'; word++, i++) {
        char c = i < length ? text[i] : '\0';
        if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != *word)
            return false;
    }
    return true;
}

const char *tl_sniff(const void *bytes, size_t length) {
    static const struct {
        const char *mark;
        size_t length;
        const char *what;
    } marks[] = {
        {"PK\3\4", 4, "a zip archive (a PyTorch checkpoint is one)"},
        {"PK\5\6", 4, "an empty zip archive"},
        {"GGUF", 4, "a GGUF file"},
        {"\x80\x04\x95", 3, "a Python pickle"},
        {"\x80\x05\x95", 3, "a Python pickle"},
        {"version https://git-lfs", 23, "a git-LFS pointer: the file itself was not fetched (git lfs pull)"},
        {"\x93NUMPY", 6, "a NumPy array"},
        {"\x89HDF", 4, "an HDF5 file"},
        {"\x1f\x8b\x08", 3, "a gzip file"},
        {"\x28\xb5\x2f\xfd", 4, "a zstd file"},
        {"PAR1", 4, "a Parquet file"},
        {"ARROW1", 6, "an Arrow file"},
        {"\x7f"
         "ELF",
         4, "a program (ELF)"},
        {"!<arch>\n", 8, "a library of objects (.a)"},
        {"\x89PNG", 4, "a PNG picture"},
        {"\xff\xd8\xff\xe0", 4, "a JPEG picture"},
        {"%PDF", 4, "a PDF"},
        {"TALLYCK\n", 8, "a checkpoint in the first format of tally, which is not read any more"},
    };
    const char *text = bytes;
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (length >= marks[i].length && memcmp(text, marks[i].mark, marks[i].length) == 0)
            return marks[i].what;
    if (length >= 10 && text[8] == '{') {
        /* safetensors: the header's length, 8 bytes little-endian, then the header. */
        uint64_t header = 0;
        for (int i = 7; i >= 0; i--)
            header = header << 8 | (unsigned char)text[i];
        if (header >= 2 && header <= 100000000)
            return "a safetensors file";
    }
    if (tl_sniff_word(text, length, "<!doctype") || tl_sniff_word(text, length, "<html"))
        return "an HTML page (a download that wanted a login?)";
    return NULL;
}
