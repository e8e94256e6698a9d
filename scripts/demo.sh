#!/usr/bin/env bash
# Replays two real recordings through the cochlea model, checks that streaming gave the offline result bit for bit, and
# says where numbers and pictures are. `make demo` builds build/bin/halotap first.
#
#   scripts/demo.sh            writes into out/
set -euo pipefail
cd "$(dirname "$0")/.."

halotap=build/bin/halotap
model=configs/cochlea/model.yaml
chunk_frames=480 # 10 ms at the model's 48 kHz

# Speech, 48 kHz, mono: as the model takes it.
speech=/usr/share/sounds/alsa/Front_Center.wav
# Music, 22.05 kHz, stereo: its first channel is taken and resampled.
music=/usr/share/sounds/freedesktop/stereo/service-login.oga

say() { echo "halotap demo: $*"; }

# replay NAME INPUT: writes out/NAME.npy and out/NAME.png.
replay() {
  echo
  say "$2"
  "$halotap" replay --model "$model" --input "$2" --output "out/$1.npy" --plot "out/$1.png" --chunk "$chunk_frames"
  results+=("out/$1.png" "out/$1.npy")
}

# verify NAME INPUT: what the stream wrote against an offline run over the whole recording; not one bit may differ.
verify() {
  echo
  say "the same in one piece: is out/$1.npy, computed in chunks of $chunk_frames frames, equal bit for bit?"
  "$halotap" verify --model "$model" --input "$2" --expect "out/$1.npy" --offline --abs 0
}

if [ ! -x "$halotap" ]; then
  say "$halotap is missing: run 'make build' first" >&2
  exit 2
fi
mkdir -p out
results=()

if [ -r "$speech" ]; then
  replay speech "$speech"
  verify speech "$speech"
else
  say "left out: $speech is missing (package alsa-utils)"
fi
if [ -r "$music" ]; then
  replay music "$music?channels=0&resample=true"
else
  say "left out: $music is missing (package sound-theme-freedesktop)"
fi
if [ ${#results[@]} = 0 ]; then
  chirp="synth://chirp?from_hz=100&to_hz=6000&seconds=2"
  say "no recording is here: a made-up chirp takes their place"
  replay chirp "$chirp"
  verify chirp "$chirp"
fi

echo
say "results: pictures (level of each band over time) and the numbers behind them, [frames, 32]:"
printf '  %s\n' "${results[@]}"
