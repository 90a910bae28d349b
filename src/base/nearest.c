#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

#define MOST 4

static int plain(const char *text, char out[TL_NEAREST_LONGEST]) {
    int length = 0;
    for (; *text != '\0' && length < TL_NEAREST_LONGEST; text++) {
        char c = *text;
        if (c == '-' || c == '_' || c == ' ' || c == '.' || c == '/')
            continue;
        out[length++] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    return length;
}

static int smaller(int a, int b) { return a < b ? a : b; }

/* The distance of `a` to all of `b`, and in *start its distance to the nearest
 * beginning of `b`. */
static int distances(const char *a, const char *b, int *start) {
    char left[TL_NEAREST_LONGEST], right[TL_NEAREST_LONGEST];
    int n = plain(a, left), m = plain(b, right);
    int rows[3][TL_NEAREST_LONGEST + 1];
    for (int j = 0; j <= m; j++)
        rows[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= m; j++) {
            int same = left[i - 1] == right[j - 1];
            now[j] = smaller(smaller(last[j] + 1, now[j - 1] + 1), last[j - 1] + !same);
            if (i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1])
                now[j] = smaller(now[j], before[j - 2] + 1);
        }
    }
    *start = n;
    for (int j = 0; j <= m; j++)
        *start = smaller(*start, rows[n % 3][j]);
    return rows[n % 3][m];
}

int tl_name_distance(const char *a, const char *b) {
    int start;
    return distances(a, b, &start);
}

#define NOT_NEAR 1000000

/* People leave endings off, so the distance to the beginning ranks first and
 * that to the whole second. */
static int score(const char *query, const char *name) {
    char left[TL_NEAREST_LONGEST];
    int n = plain(query, left), start, whole = distances(query, name, &start);
    return start <= smaller((n + 1) / 3, 4) && start < n ? start * 1000 + whole : NOT_NEAR;
}

int tl_nearest_names(const char *query, const char *(*name_at)(int index), int count, int most, char *text,
                     size_t size) {
    int best[MOST], scores[MOST], found = 0;
    most = smaller(most, MOST);
    for (int i = 0; i < count; i++) {
        int value = score(query, name_at(i)), place = found;
        if (value >= NOT_NEAR)
            continue;
        while (place > 0 && scores[place - 1] > value)
            place--;
        if (place >= most)
            continue;
        if (found < most)
            found++;
        for (int k = found - 1; k > place; k--) {
            best[k] = best[k - 1];
            scores[k] = scores[k - 1];
        }
        best[place] = i;
        scores[place] = value;
    }
    size_t used = 0;
    if (size > 0)
        text[0] = '\0';
    for (int k = 0; k < found; k++) {
        const char *join = k == 0 ? "" : k == found - 1 ? " or " : ", ";
        int wrote = snprintf(text + used, size - used, "%s%s", join, name_at(best[k]));
        if (wrote < 0 || (size_t)wrote >= size - used)
            break;
        used += (size_t)wrote;
    }
    return found;
}

/* The length of the UTF-8 character at `s`, or 0 where it is not one. */
static size_t utf8_length(const unsigned char *s, size_t left) {
    size_t need = s[0] < 0x80                    ? 1
                  : s[0] >= 0xC2 && s[0] <= 0xDF ? 2
                  : (s[0] & 0xF0) == 0xE0        ? 3
                  : s[0] >= 0xF0 && s[0] <= 0xF4 ? 4
                                                 : 0;
    if (need == 0 || need > left)
        return 0;
    for (size_t i = 1; i < need; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    return need;
}

const char *tl_quotable(const char *text, size_t length, char *out, size_t size) {
    size_t used = 0, i = 0;
    if (size == 0)
        return "";
    while (i < length) {
        size_t step = utf8_length((const unsigned char *)text + i, length - i);
        size_t wide = step == 0 ? 1 : step;
        bool fits = used + wide + (i + wide < length ? 3 : 0) < size;
        if (!fits) {
            for (int dots = 0; dots < 3 && used + 1 < size; dots++)
                out[used++] = '.';
            break;
        }
        unsigned char c = (unsigned char)text[i];
        if (step == 0 || (step == 1 && (c < 0x20 || c == 0x7f)) || (c == 0xC2 && (unsigned char)text[i + 1] < 0xA0))
            out[used++] = '?';
        else {
            memcpy(out + used, text + i, step);
            used += step;
        }
        i += wide;
    }
    out[used] = '\0';
    return out;
}
