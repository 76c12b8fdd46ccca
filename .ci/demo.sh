#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main job, from R to Julia to Python and back, on one file. Run it by ./run demo.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source .ci/env.sh
tool=$TARTAN_BUILD/bindings/cli/tartan
out=build/demo
file=$out/counties.h5
log=$out/products.txt
mkdir -p "$out"
rm -f "$file" "$log"

echo "== One pattern, three languages: $file"
Rscript .ci/demo/1_save.R "$file"
names=(counties)
if [ -n "$JULIA" ]; then
    "$JULIA" --startup-file=no .ci/demo/2_reuse.jl "$file"
    names+=("julia weights")
else
    echo "Julia   is not here, so its part is left out"
fi
"$PYTHON" .ci/demo/3_reuse.py "$file"

echo "== What is in the file"
"$tool" show "$file"
"$tool" verify "$file" >"$out/verify.txt"
head -1 "$out/verify.txt"

echo "== The same product in each language"
Rscript .ci/demo/4_multiply.R "$file" "${names[@]}" | tee -a "$log"
[ -z "$JULIA" ] || "$JULIA" --startup-file=no .ci/demo/4_multiply.jl "$file" "${names[@]}" | tee -a "$log"
"$PYTHON" .ci/demo/4_multiply.py "$file" "${names[@]}" | tee -a "$log"

for name in "${names[@]}"; do
    distinct=$(grep -F " $name " "$log" | grep -oE 'checksum [0-9a-f]{32}' | sort -u)
    if [ "$(printf '%s\n' "$distinct" | wc -l)" -ne 1 ]; then
        echo "demo: the languages disagree about \"$name\"" >&2
        exit 1
    fi
    echo "all agree: $name ${distinct#checksum }"
done

echo "== The pattern"
"$tool" show "$file" counties
"$tool" show "$file" counties --png "$out/counties.png"
"$tool" show "$file" counties --svg "$out/counties.svg"
echo "pictures: $out/counties.png, $out/counties.svg"
echo "== How fast: one thread, random layout, beside its peers"
"$tool" bench spmm --size 2048 --n 256 --block 32 --rounds 5
