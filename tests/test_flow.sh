#!/bin/sh
# From texts to a model that writes, with the commands of README's section of that name: learn, pack, info, verify, train
# (interrupted and resumed), eval, sample, export, inspect. The texts are made here. What is derived is derived again by awk:
# perplexity is exp(loss) (Jelinek et al. 1977), bits per byte loss·targets ÷ (ln 2·bytes) (Gao et al. 2020, section 3.1).
set -u
. tests/verb.inc
cd "$work" || exit 1

narrow() { # the last output, in columns
    ! awk '{ gsub(/[\200-\277]/, "") } length($0) > 80' out | grep -q .
    said "$1: within 80 columns" $?
}
field() { # FILE KEY: the last value
    sed -n "s/.*\"$2\": *\([^,}]*\).*/\1/p" "$1" | tail -1
}
holds() { # NAME EXPRESSION of awk
    awk "BEGIN { exit !($2) }"
    said "$1" $?
}

# ---- texts: short tales out of a few words, ten documents and two ----
tales() { # SEED COUNT
    awk -v seed="$1" -v count="$2" 'function pick(list,   n, w) { n = split(list, w, ","); seed = (seed * 1103515245 + 12345) % 2147483648
        return w[1 + int(seed / 65536) % n] }
    BEGIN { for (d = 0; d < count; d++) { for (s = 0; s < 12; s++)
        printf "The %s %s %s the %s near the %s.%s", pick("red,old,small,quiet"), pick("fox,miller,owl,ship"),
            pick("watched,followed,painted,remembered"), pick("river,lantern,garden,clock"), pick("hill,harbour,mill"), s % 4 == 3 ? "\n" : " "
        printf "<|endoftext|>" } }'
}
tales 1 10 >train.txt
tales 99 2 >val.txt

# ---- a tokenizer ----
gives 'learn: a tokenizer from a text' 0 '320 tokens' data learn train.txt -o tok --vocab 320
narrow 'learn'
[ -s tok/vocab.json ] && [ -s tok/merges.txt ] && [ "$(find tok -type f | wc -l)" -eq 2 ]
said 'two files and no others' $?
cp -r tok first
run data learn train.txt -o tok --vocab 320
cmp -s tok/vocab.json first/vocab.json && cmp -s tok/merges.txt first/merges.txt
said 'learned again: the same bytes' $?
gives 'encode takes standard input' 0 '' data encode val.txt --tokenizer tok --special encode
cp out ids.txt
[ "$(tr ' ' '\n' <ids.txt | grep -c '^319$')" -eq 2 ]
said 'the special token is the last id, once a document' $?
"$TALLY" data decode - --tokenizer tok <ids.txt | cmp -s - val.txt
said 'decode gives the text back' $?

# ---- tokens ----
for part in train val; do
    run data pack $part.txt -o $part.bin --tokenizer tok --special encode --separator none
    said "pack $part" $?
done
rm -f train.bin val.bin
for part in train val; do
    run data pack $part.txt -o $part.bin --tokenizer tok --special encode
    narrow "pack $part"
    [ "$(field $part.bin.json tokens)" -eq $(($(wc -c <$part.bin) / 2)) ] && [ "$(field $part.bin.json text_bytes)" -eq "$(wc -c <$part.txt)" ]
    said "$part.bin.json: tokens and bytes as the files have them" $?
done
[ "$(field val.bin.json separator)" = 319 ] && [ "$(field val.bin.json vocab)" = 320 ]
said 'and the separator and the vocabulary of the tokenizer' $?
gives 'info shows what pack noted' 0 'tok, vocabulary 320' data info train.bin
narrow 'info'
gives 'verify takes the vocabulary from it' 0 'every id below 320' data verify train.bin

# ---- a run: dropout, epochs, a validation loss ----
options="--val val.bin --model gpt2:N=2,D=32,H=2,dropout=0.1 --seq 32 --micro-batch 4 --global-batch 8 --sampler epochs
    --lr 5e-3 --warmup 5 --steps 60 --log-every 20 --eval-every 15 --threads 1"
# shellcheck disable=SC2086
run train train.bin --out runs/a $options --init gpt2
said 'train' $?
narrow 'train'
grep -q 'vocabulary 320 (as packed)' err
said 'the vocabulary is as packed' $?
grep -q 'bits per byte' out
said 'bits per byte of the validation text' $?
[ "$(field runs/a/run.json separator)" = '"319"' ] && [ "$(field runs/a/run.json tokenizer)" = "\"$(pwd -P)/tok\"" ] &&
    [ "$(field runs/a/run.json tokenizer_hash)" = "$(field train.bin.json tokenizer_hash)" ]
said 'run.json names separator, tokenizer and its hash' $?
[ "$(grep -c '"val_loss"' runs/a/metrics.jsonl)" -eq 4 ]
said 'a val_loss at steps 15, 30, 45 and 60' $?
holds 'it learned' "$(field runs/a/evaluation.json loss) < 3 && $(field runs/a/evaluation.json loss) > 0"
holds 'perplexity = exp(loss)' "(d = $(field runs/a/evaluation.json perplexity) - exp($(field runs/a/evaluation.json loss))) < 1e-6 && d > -1e-6"

# ---- interrupted and resumed ----
# shellcheck disable=SC2086
run train train.bin --out runs/b $options --init gpt2 --stop-at 37
[ $? -eq 0 ] && [ "$(tail -1 runs/b/metrics.jsonl | sed 's/{"step":\([0-9]*\).*/\1/')" = 37 ]
said 'stopped at step 37' $?
run train --out runs/b --resume
[ $? -eq 0 ] && cmp -s runs/a/checkpoints/step-00000060.safetensors runs/b/checkpoints/step-00000060.safetensors
said 'resumed: the bits of the run that was not interrupted' $?
[ "$(readlink runs/a/checkpoints/best)" = "$(readlink runs/b/checkpoints/best)" ]
said 'and the same best' $?

# ---- best: the lowest val_loss that was seen, of exactly these weights ----
# Learned by heart from 70 tokens: the loss on the other text rises again, having been lowest where no checkpoint was due.
head -c 706 val.bin >v.bin # 353 tokens: 11 windows of 32, none left over
head -c 140 train.bin >few.bin
run train few.bin --data-dtype uint16 --out runs/c --val v.bin --model gpt2:N=1,D=16,H=2 --seq 32 --micro-batch 2 --lr 0.02 --schedule constant --warmup 0 \
    --steps 120 --eval-every 3 --log-every 100 --threads 1 --separator none --vocab 320
said 'a run whose last loss is not its best' $?
least=$(sed -n 's/.*"step":\([0-9]*\),.*"val_loss":\([^,]*\),.*/\2 \1/p' runs/c/metrics.jsonl | sort -g | head -1)
[ "$(readlink runs/c/checkpoints/best)" = "$(printf 'step-%08d.safetensors' "${least#* }")" ] && [ "${least#* }" -lt 120 ]
said "best is of step ${least#* }" $?
run --json eval "runs/c/checkpoints/$(readlink runs/c/checkpoints/best)" --data v.bin --dtype uint16 --seq 32
holds 'evaluating its weights gives the loss it was chosen by' "(d = $(field out loss) - ${least% *}) < 1e-5 && d > -1e-5"
last=$(tail -1 runs/c/metrics.jsonl)
printf '%s\n' "$last" >last
run --json eval runs/c --data v.bin --dtype uint16 --seq 32
holds 'the last line is of the last weights' "(d = $(field out loss) - $(field last val_loss)) < 1e-5 && d > -1e-5"

# ---- eval ----
run --json eval runs/a
said 'eval needs neither data nor tokenizer' $?
cp out eval.json
holds 'eval: perplexity = exp(loss)' "(d = $(field eval.json perplexity) - exp($(field eval.json loss))) < 1e-6 && d > -1e-6"
holds 'eval: bits per byte' "(d = $(field eval.json bits_per_byte) - $(field eval.json loss) * $(field eval.json targets) / (log(2) * $(field eval.json bytes))) < 1e-9 && d > -1e-9"
run eval runs/a
narrow 'eval'

# ---- sample ----
run sample runs/a --prompt 'The old' --tokens 24 --seed 3 --temperature 0.8
said 'sample' $?
cp out sampled
grep -q '[a-z] [a-z]' sampled
said 'what it writes is text' $?
run sample runs/a --prompt 'The old' --tokens 24 --seed 3 --temperature 0.8
cmp -s out sampled
said 'the same seed, the same text' $?
run sample runs/a --prompt 'The old' --tokens 24 --temperature 0
cp out greedy
run sample runs/a --prompt 'The old' --tokens 24 --temperature 0 --threads 2
cmp -s out greedy && ! cmp -s out sampled
said 'greedy: the likeliest each time, on two threads too' $?

# ---- export, inspect ----
run export runs/a --out hf
said 'export' $?
cmp -s hf/vocab.json tok/vocab.json && cmp -s hf/merges.txt tok/merges.txt
said 'export: the tokenizer goes with it' $?
run sample hf --prompt 'The old' --tokens 24 --temperature 0
cmp -s out greedy
said 'and the folder alone writes the same text' $?
gives 'inspect its weights' 0 'tensors' inspect hf/model.safetensors
run --json eval hf --data val.bin --tokenizer tok --seq 32
holds 'exported: the same loss' "(d = $(field out loss) - $(field eval.json loss)) < 1e-5 && d > -1e-5"
gives 'inspect a checkpoint' 0 'step' inspect runs/a/checkpoints/latest

# ---- finetuning: at a rate of 0 the weights stay, and so does the loss ----
run train train.bin --out runs/d --val val.bin --weights hf --lr 0 --weight-decay 0 --steps 1 --micro-batch 4 --sampler epochs --threads 1
said 'train from exported weights, the model beside them' $?
holds 'a step at a rate of 0: the loss of the run they are of' "(d = $(field runs/d/evaluation.json loss) - $(field runs/a/evaluation.json loss)) < 1e-5 && d > -1e-5"
run train train.bin --out runs/e --val val.bin --weights hf --lr 1e-3 --steps 20 --micro-batch 4 --sampler epochs --threads 1
holds 'and at another it goes on learning' "$(sed -n 's/^{"step":10,"loss":\([^,]*\),.*/\1/p' runs/e/metrics.jsonl) < $(sed -n 's/^{"step":20,"loss":\([^,]*\),.*/\1/p' runs/a/metrics.jsonl)"
gives 'a scheme beside weights' 2 'changes nothing' train train.bin --out r --weights hf --init gpt2 --steps 1
gives 'weights that are not there' 2 'there is none' train train.bin --out r --weights nowhere --steps 1

# ---- what does not belong together ----
cp train.bin.json kept.json
sed 's/"tokens": [0-9]*/"tokens": 12/' kept.json >train.bin.json
gives 'a note of another file is refused by name' 1 'train.bin.json tells of 12 tokens' train train.bin --out r --steps 1
gives 'by info too' 1 'train.bin.json tells of 12 tokens' data info train.bin
[ ! -e r ]
said 'before there is a folder' $?
echo '{"schema": "mine"}' >train.bin.json
gives 'what is no note of pack' 1 'is not what' train train.bin --out r --steps 1
gives 'and pack does not overwrite it' 2 'something else is there' data pack train.txt -o train.bin --tokenizer tok
rm train.bin.json
gives 'without a note it trains as before' 0 'step 1 of 1' train train.bin --out plain --steps 1 --seq 32 --model gpt2:N=1,D=16,H=2 --threads 1
cp kept.json train.bin.json
run data pack val.txt -o bytes.bin
gives 'tokens of two tokenizers' 2 'different tokenizers' train train.bin --val bytes.bin --out r --steps 1
gives 'another tokenizer than the note names' 2 'is not the one that' train train.bin --out r --steps 1 --tokenizer bytes
gives 'an unknown scheme' 2 '--init' train train.bin --out r --steps 1 --init best
run data learn val.txt -o tok --vocab 300
gives 'a tokenizer that changed since' 1 'its vocabulary is another' sample runs/a --prompt 'The'
