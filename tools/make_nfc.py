#!/usr/bin/python3
"""make_nfc.py: the table of src/tokenizer/nfc.c, from the Unicode data of Python's unicodedata (3.11: Unicode 14).

A code point is listed with its canonical combining class where that is not 0, and with 255 where normal form C may change
it or join it to what is before it (NFC_Quick_Check No or Maybe: it does not survive alone, or is the second of a primary
composite, or a Hangul vowel or final). Everything else stays as it is wherever it stands."""
import sys
import unicodedata as data

second = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
for code in range(0x110000):
    parts = data.decomposition(chr(code)).split()
    if len(parts) == 2 and not parts[0].startswith("<") and data.normalize("NFC", chr(code)) == chr(code):
        second.add(int(parts[1], 16))


def value(code):
    if 0xD800 <= code <= 0xDFFF or code == 0x110000:
        return 0
    if code in second or data.normalize("NFC", chr(code)) != chr(code):
        return 255
    return data.combining(chr(code))


ranges, first = [], 0
for code in range(1, 0x110001):
    if value(code) != value(first):
        if value(first):
            ranges.append((first, code - 1, value(first)))
        first = code
print(f"/* Unicode {data.unidata_version}, {len(ranges)} ranges */")
line = ""
for item in ranges:
    text = "{0x%X, 0x%X, %d}," % item
    if len(line) + len(text) > 112:
        print("    " + line.rstrip())
        line = ""
    line += text + " "
print("    " + line.rstrip())
