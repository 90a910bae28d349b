#!/bin/sh
# tally data: info, verify, pack, and inspect of token files. Files are made here with printf and awk, so that what they
# hold is known; llm.c's header is its dev/data/data_common.py's: 256 int32, magic 20240520 (bytes 88 D8 34 01), version 1,
# number of tokens; or 20240801 (A1 D9 34 01), version 7. Statuses are CLI.md's.
set -u
. tests/verb.inc
cd "$work" || exit 1

# Numbers as little-endian ids of 2 or 4 bytes. The shell's printf writes bytes by octal escapes.
ids() { # WIDTH NUMBER...
    width=$1
    shift
    for id in "$@"; do
        printf "\\$(printf %03o $((id % 256)))\\$(printf %03o $((id / 256 % 256)))"
        [ "$width" -eq 2 ] || printf "\\$(printf %03o $((id / 65536 % 256)))\\$(printf %03o $((id / 16777216)))"
    done
}
# llm.c's header: the first three words, then zeros.
header() { # MAGIC VERSION COUNT
    ids 4 "$1" "$2" "$3"
    dd if=/dev/zero bs=1012 count=1 2>/dev/null
}

# ---- pack, and back ----
printf 'Once upon a time.\n' >a.txt
printf 'The end\n' >b.txt
gives 'pack makes tokens of a text' 0 '26 tokens' data pack a.txt b.txt -o two.bin
[ "$(wc -c <two.bin)" -eq 52 ]
said 'two bytes each' $?
[ "$(tr -d '\0' <two.bin)" = "$(cat a.txt b.txt)" ]
said 'which are the bytes of the texts' $?
gives 'a separator behind each document' 0 '28 tokens' data pack a.txt b.txt -o sep.bin --separator 256
gives 'info counts them' 0 '2 times the separator 256' data info sep.bin --separator 256
gives 'largest id and how many differ' 0 'ids 10 to 256' data info sep.bin
gives 'info infers the width and says from what' 0 'inferred: as uint32, id' data info sep.bin
for form in raw llmc npy; do
    for dtype in uint16 uint32; do
        gives "pack --form $form --dtype $dtype" 0 "of $dtype" data pack a.txt b.txt -o "$form.$dtype" --form $form --dtype $dtype
        gives "$form of $dtype is read back" 0 '26 tokens' data info "$form.$dtype"
        gives "$form of $dtype is verified" 0 'every id below 256' data verify "$form.$dtype" --vocab 256
    done
done
gives 'a name in .npy means npy' 0 'npy of uint16' data pack a.txt -o named.npy
gives 'an empty text is a document too' 0 '0 tokens' data pack /dev/null -o empty.bin
gives 'and its file is read' 0 '0 tokens' data info empty.bin
[ ! -e two.bin.tmp ] && [ ! -e sep.bin.tmp ]
said 'no temporary files stay' $?

gives 'bytes+eot ends each text' 0 '28 tokens' data pack a.txt b.txt -o eot.bin --tokenizer bytes+eot
gives 'with 256' 0 'ids 10 to 256' data info eot.bin
gives 'unless that is not wanted' 0 '26 tokens' data pack a.txt b.txt -o eot.bin --tokenizer bytes+eot --separator none
printf 'a<|endoftext|>b' >special.txt
gives 'a special token in a text is letters' 0 '16 tokens' data pack special.txt -o s.bin --tokenizer bytes+eot
gives 'or its id' 0 '4 tokens' data pack special.txt -o s.bin --tokenizer bytes+eot --special encode
gives 'or refused' 2 '<|endoftext|>' data pack special.txt -o s.bin --tokenizer bytes+eot --special refuse
gives 'verify takes a vocabulary from a tokenizer' 1 'not below the vocabulary of 256' data verify s.bin --tokenizer bytes
# GPT-2's vocabulary, where it is; "Hello world" is 15496 995 in it (its encoder.json: "Hello", "\u0120world").
bpe=${TALLY_SHARED:-$OLDPWD/../shared}/suites/cs336/tokenizer
printf 'Hello world' >hello.txt
if [ -f "$bpe/gpt2_vocab.json" ]; then
    gives 'byte-pair encoding' 0 '3 tokens' data pack hello.txt -o hello.bin --tokenizer "$bpe"
    [ "$(od -An -tu2 hello.bin | tr -s ' ' | sed 's/^ //')" = '15496 995 50256' ]
    said 'as GPT-2 has it' $?
else
    echo "skip byte-pair encoding: no $bpe"
fi

# ---- what fails leaves the old file ----
cp two.bin kept.bin
gives 'a text that is not there' 1 'No such file' data pack a.txt missing.txt -o kept.bin
cmp -s two.bin kept.bin && [ ! -e kept.bin.tmp ]
said 'leaves the old file and nothing else' $?
gives 'an id above 65,535 is refused in two bytes' 2 'id 70000 at index 18 does not fit uint16' data pack a.txt -o kept.bin \
    --separator 70000 --dtype uint16
cmp -s two.bin kept.bin
said 'and the old file stays' $?
gives 'in four bytes it is kept' 0 '19 tokens' data pack a.txt -o wide.bin --separator 70000
gives 'as it is' 0 'ids 10 to 70000' data info wide.bin
if [ "$(id -u)" -ne 0 ]; then
    mkdir closed && chmod 500 closed
    gives 'a folder that may not be written' 1 'cannot create' data pack a.txt -o closed/x.bin
    chmod 700 closed
else
    echo 'skip a folder that may not be written: root may'
fi
gives 'a device is not replaced' 1 'no regular file' data pack a.txt -o /dev/null
[ -c /dev/null ]
said 'and is still one' $?
gives 'nor is a folder' 1 'it is a folder' data pack a.txt -o .
gives 'a folder that is not there' 1 'nowhere/x.bin' data pack a.txt -o nowhere/x.bin
dd if=/dev/zero of=big.txt bs=1024 count=600 2>/dev/null
(
    ulimit -f 100 # blocks of 512 bytes
    trap '' XFSZ 2>/dev/null
    run data pack big.txt -o kept.bin
    [ $? -eq 1 ] && grep -q 'kept.bin.tmp' err
)
said 'a disk that is full' $?
cmp -s two.bin kept.bin
said 'leaves the old file' $?

# ---- what pack may not take the place of ----
# A rename would make a plain file of a pipe, of a device and of what links to one; a character device cannot be made
# everywhere, so the link is to /dev/null, which stays what it is whatever happens here.
mkfifo pipe
ln -s /dev/null tonull
ln -s kept.bin tokept
gives 'pack does not replace a pipe' 1 'pipe: it is no regular file' data pack a.txt -o pipe
[ -p pipe ]
said 'which stays one' $?
gives 'nor a link to a device' 1 'tonull: it is no regular file' data pack a.txt -o tonull
gives 'nor a link to a file' 1 'tokept: it is a symbolic link' data pack a.txt -o tokept
[ -L tonull ] && [ -L tokept ] && cmp -s two.bin kept.bin
said 'and what they name stays' $?
gives 'nor a folder' 1 'set.d: it is a folder' data pack a.txt -o "$(mkdir set.d && echo set.d)"
cp a.txt self.txt
gives 'nor the text it reads' 2 '-o ./self.txt is the text self.txt itself' data pack b.txt self.txt -o ./self.txt
cmp -s a.txt self.txt && ! ls ./*.tmp 2>err
said 'which stays as it was' $?

# ---- verify ----
ids 2 5 6 50257 7 >v.bin
gives 'the first id beyond the vocabulary, by index and file' 1 'v.bin: id 50257 at index 2 is not below the vocabulary of 50257' \
    data verify v.bin --dtype uint16 --vocab 50257
gives 'and how many' 1 'bad ids 1 of 4' data verify v.bin --dtype uint16 --vocab 50257
gives 'with room for it, all is well' 0 'ok' data verify v.bin --dtype uint16 --vocab 50258
ids 4 464 2068 7586 21831 50256 17 33 900 >w.bin
gives 'uint32 read as uint16' 1 'id 0 at index 1: every second id' data verify w.bin --dtype uint16 --vocab 50257
gives 'says what it looks like' 1 'uint32 ids read as uint16' data verify w.bin --dtype uint16
gives 'read as what it is, all is well' 0 'ok' data verify w.bin --dtype uint32 --vocab 50257
ids 2 464 2068 7586 21831 50256 17 33 900 >n.bin
gives 'uint16 read as uint32' 1 'uint16 ids read as uint32' data verify n.bin --dtype uint32
run --json data verify v.bin --dtype uint16 --vocab 50257
code=$?
[ $code -eq 1 ] && grep -q '"ok": false' out && grep -q '"first_bad_index": 2' out && grep -q '"first_bad_id": 50257' out
said 'verify as JSON' $?
run --format csv data verify v.bin --dtype uint16
[ $? -eq 0 ] && [ "$(wc -l <out)" -eq 2 ]
said 'verify as CSV' $?

# ---- forms ----
{ header 20240520 1 3; ids 2 1 2 50256; } >one.llmc
{ header 20240801 7 3; ids 4 1 2 128255; } >seven.llmc
gives 'llm.c, version 1' 0 'llm.c, version 1' data info one.llmc
gives 'documents by the assumed separator' 0 '50256 (GPT-2' data info one.llmc
gives 'llm.c, version 7' 0 'ids 1 to 128255' data info seven.llmc
gives 'inspect reads shards' 0 '3 tokens' inspect seven.llmc
gives 'and headerless files of that name' 0 'of uint16' inspect two.bin
{ header 20240520 1 4; ids 2 1 2 3; } >short.llmc
gives 'a shard cut short' 1 'counts 4 tokens, the file has room for 3' data info short.llmc
{ header 20240520 2 3; ids 2 1 2 3; } >version.llmc
gives 'a version unknown' 1 'of version 2' data info version.llmc
{ header 20240522 1 1; ids 2 1 2 3; } >evaluation.llmc
gives 'an evaluation file' 1 'evaluation file' inspect evaluation.llmc
printf 'abc' >odd.bin
gives 'an odd number of bytes' 1 'odd number of bytes' data info odd.bin
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\n' >lfs.bin
gives 'a git-LFS pointer' 1 'git-LFS pointer' data info lfs.bin
gives 'whatever its width is said to be' 1 'git-LFS pointer' data info lfs.bin --form raw --dtype uint16
gives 'a text' 1 'is text, not tokens' data info a.txt
gives 'a header read as ids' 1 'is a NumPy array (.npy, it begins with a header), not ids without a header' data info named.npy --form raw
gives 'the other width than the header says' 1 'holds uint16' data info named.npy --dtype uint32
dd if=/dev/zero of=zeros.bin bs=1024 count=4 2>/dev/null
gives 'ids that leave the width open' 1 'uint16 or uint32' data info zeros.bin

# ---- sets ----
mkdir set
ids 2 10 11 12 >set/s_01.bin
ids 2 20 21 >set/s_02.bin
printf 'notes\n' >set/README
gives 'a folder is one stream' 0 '5 tokens (raw of uint16, 10 B in 2 files)' data info set --dtype uint16
gives 'so is a pattern' 0 '5 tokens' data info 'set/*.bin' --dtype uint16
gives 'and a list' 0 '5 tokens' data info set/s_02.bin set/s_01.bin --dtype uint16
cp one.llmc set/s_03.bin
gives 'a stray file of another form is named' 1 's_03.bin is llmc of uint16' data info set --dtype uint16
printf 's_02.bin\ns_01.bin\n' >set/shards.txt
gives 'the index decides' 0 '5 tokens' data info set --dtype uint16
run data info set --dtype uint16
grep -q 'files  *set/s_02.bin: 2' out
said 'in its own order' $?
rm set/shards.txt set/s_03.bin
mkdir set/shards.txt
gives 'an index that is no file is not passed over' 1 'set/shards.txt: it is no regular file' data info set --dtype uint16
mkdir both
cp set/s_01.bin both/train.bin
cp set/s_02.bin both/val.bin
gives 'training and evaluation data are not one stream' 2 'not one stream' data info both --dtype uint16
gives 'twice the same file' 2 'named twice' data info set/s_01.bin set/s_01.bin --dtype uint16

# ---- usage ----
gives 'no action' 2 'it needs' data
gives 'an unknown action' 2 'did you mean info?' data inof a.bin
gives 'no file' 2 'needs FILE' data verify
gives 'pack without -o' 2 '-o FILE' data pack a.txt
gives 'an unknown form' 2 'raw, llmc and npy' data info two.bin --form tar
gives 'an unknown dtype' 2 'uint16 or uint32' data info two.bin --dtype int8
gives 'a vocabulary of 0' 2 '--vocab' data verify two.bin --vocab 0
gives 'an unknown tokenizer' 2 'nowhere.json' data pack a.txt -o x.bin --tokenizer ./nowhere.json
gives 'an option without effect' 2 'changes nothing' data verify two.bin --separator 3
gives 'a file that is not there' 2 'nowhere.bin' data info nowhere.bin
run data info two.bin sep.bin
! grep -qE '^.{81}' out
said 'within 80 columns' $?

# ---- learn, encode, decode ----
# The first merges of corpus.en are those recorded in tests/fixtures/bpe_fixtures.h, of the naive learner in
# make_bpe_fixtures.py, which follows CS336's assignment 1: "20-74 20-61 68-65 69-6e 2074-6865 72-65 20-6f 20-2c 65-72 20-73".
corpus=$bpe/corpus.en
if [ -f "$corpus" ]; then
    gives 'learn' 0 '500 tokens' data learn "$corpus" -o learned --vocab 500 --special '<|endoftext|>'
    ! grep -qE '^.{90}' out
    said 'in lines of 80 columns' $?
    [ "$(sed -n 2,11p learned/merges.txt | tr '\n' '/')" = 'Ġ t/Ġ a/h e/i n/Ġt he/r e/Ġ o/Ġ ,/e r/Ġ s/' ]
    said 'its first merges are the recorded ones' $?
    [ "$(wc -l <learned/merges.txt)" -eq 244 ] && grep -q '"<|endoftext|>":499' learned/vocab.json
    said '243 merges, and the special token is the last id' $?
else
    echo 'skip learn, against the recorded merges: no corpus.en in TALLY_SHARED'
fi
printf 'abab abab abab\n' >ab.txt
gives 'learn --json' 0 '"merges": 3' --json data learn ab.txt -o ab --vocab 259 --special none
[ "$(tail -n +2 ab/merges.txt | tr '\n' '/')" = 'a b/ab ab/Ġ abab/' ]
said 'ab (6), abab (3), then the blank before it (2): by hand' $?
# Ids by hand: 256 is ab, 257 abab, 258 " abab"; a new line is byte 10.
gives 'encode' 0 '257 258 258 10' data encode ab.txt --tokenizer ab
gives 'encode --json' 0 '"tokens": 4, "text_bytes": 15, "vocab": 259, "ids": [ 257, 258, 258, 10 ]' --json data encode ab.txt --tokenizer ab
"$TALLY" data encode - --tokenizer ab <ab.txt | "$TALLY" data decode - --tokenizer ab | cmp -s - ab.txt
said 'and decode, through pipes' $?
gives 'ids on the command line' 0 'abab abab' data decode 257,258 --tokenizer ab
run data pack ab.txt -o ab.bin --tokenizer ab
"$TALLY" data decode ab.bin --tokenizer ab --dtype uint16 | cmp -s - ab.txt
said 'a file of tokens' $?
head -c 300 /dev/urandom >noise.raw
"$TALLY" data encode noise.raw --tokenizer ab >noise.ids && "$TALLY" data decode noise.ids --tokenizer ab | cmp -s - noise.raw
said 'any bytes come back' $?
gives 'an id that is none' 2 'id 259 at position 1' data decode 1,259 --tokenizer ab
gives 'a word among the ids' 2 '"x" is no token id' data decode 1,x --tokenizer ab
gives 'an id beyond 2^31' 2 'is no token id' data decode 99999999999999999999 --tokenizer ab
gives 'learn without --vocab' 2 '--vocab N' data learn ab.txt -o ab2
gives 'learn of fewer tokens than bytes' 2 '25' data learn ab.txt -o ab2 --vocab 200
gives 'learn from a text that is not there' 1 'No such file' data learn nowhere.txt -o ab2 --vocab 300
[ ! -e ab2 ]
said 'no folder of what was refused' $?
gives 'learn where no folder can be' 1 'cannot make the folder' data learn ab.txt -o nowhere/deep --vocab 300
gives 'encode without a tokenizer' 2 '--tokenizer PATH' data encode ab.txt
gives 'an option without effect' 2 'changes nothing about decode' data decode 1 --tokenizer ab --vocab 3
cp ab/merges.txt merges.before
(ulimit -f 0 && "$TALLY" data learn ab.txt -o ab --vocab 258 >/dev/null 2>&1)
[ $? -ne 0 ] && cmp -s merges.before ab/merges.txt && [ "$(find ab -type f | wc -l)" -eq 2 ]
said 'a write that fails leaves the old tokenizer, and no other file' $?
