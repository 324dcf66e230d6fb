#!/usr/bin/env bash
# Packs a built volpipe with every library it needs into a folder that runs on any x86-64 Linux with glibc 2.36 or newer.
#   scripts/bundle.sh [--no-tests] [BUILD_DIR] [OUT]      defaults: build/release, bundle
set -euo pipefail

tests=true
if [[ ${1:-} == --no-tests ]]; then
  tests=false
  shift
fi
root=$(realpath "$(dirname "$0")/..")
build=$(realpath "${1:-$root/build/release}")
out=${2:-$root/bundle}
limit_mib=64

for tool in patchelf strip; do
  command -v "$tool" >/dev/null || { echo "bundle: $tool is missing: apt-get install patchelf binutils" >&2; exit 1; }
done
[[ -x $build/bin/volpipe ]] || { echo "bundle: there is no $build/bin/volpipe: run scripts/build.sh release" >&2; exit 1; }

version=$("$build/bin/volpipe" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)
name=volpipe-$version-linux-x86_64
bundle=$out/$name
rm -rf "$bundle" "$bundle.tar.gz"
mkdir -p "$bundle"/{bin,lib,licenses}

programs=(volpipe)
$tests && programs+=(volpipe_tests volpipe_gpu_tests volpipe_stage_bench volpipe_separable_bench volpipe_gather_bench volpipe_pointwise_bench)
for program in "${programs[@]}"; do
  [[ ! -x $build/bin/$program ]] || cp "$build/bin/$program" "$bundle/bin/"
done
cp "$build/lib/libvolpipe.so.0" "$build"/lib/libvolpipe_{io,n4}.so "$bundle/lib/"
if $tests && [[ -f $build/lib/libvolpipe_fail_nth.so ]]; then cp "$build/lib/libvolpipe_fail_nth.so" "$bundle/lib/"; fi
cp -r "$root/configs" "$root/sample_data" "$root/LICENSE" "$bundle/"
if $tests; then
  mkdir -p "$bundle/tests/bench"
  cp -r "$root/tests/cli" "$bundle/tests/"
  cp "$root"/tests/bench/{gpu,batch}.py "$bundle/tests/bench/"
  mkdir -p "$bundle/tests/gpu"
  cp "$root/tests/gpu/cuda_faults.py" "$bundle/tests/gpu/"
fi

# Of the system: the C library's own parts and the NVIDIA driver.
system='^(linux-vdso|ld-linux-x86-64|libc|libm|libpthread|libdl|librt|libcuda)\.so'
ldd "$bundle"/bin/* "$bundle"/lib/* | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u | while read -r library; do
  file=$(basename "$library")
  [[ $file =~ $system || -e $bundle/lib/$file ]] && continue
  cp -L "$library" "$bundle/lib/$file"
  package=$(dpkg-query -S "$(realpath "$library")" 2>/dev/null | cut -d: -f1 | head -n 1) || true
  if [[ $package && -e /usr/share/doc/$package/copyright ]]; then cp -L "/usr/share/doc/$package/copyright" "$bundle/licenses/$package"; fi
done

for package in nlohmann-json3-dev libcli11-dev libkissfft-dev; do  # nothing but headers
  [[ ! -e /usr/share/doc/$package/copyright ]] || cp -L "/usr/share/doc/$package/copyright" "$bundle/licenses/$package"
done

# RPATH, not RUNPATH: a LD_LIBRARY_PATH of the machine must not bring in another version of a library.
chmod u+w "$bundle"/bin/* "$bundle"/lib/*
strip --strip-unneeded "$bundle"/bin/* "$bundle"/lib/*
for file in "$bundle"/bin/*; do patchelf --force-rpath --set-rpath "\$ORIGIN/../lib" "$file"; done
for file in "$bundle"/lib/*; do patchelf --force-rpath --set-rpath "\$ORIGIN" "$file"; done

inside=$(realpath "$bundle")/
ldd "$bundle"/bin/* "$bundle"/lib/* | awk '$2 == "=>" {print $1, $3}' | sort -u | while read -r file path; do
  [[ $file =~ $system || $(realpath -m "$path") == "$inside"* ]] || { echo "bundle: $file comes from outside: $path" >&2; exit 1; }
done
env -i "$bundle/bin/volpipe" info "$bundle/sample_data/torso_ct.nii.gz" >/dev/null

size_mib=$(du -sm "$bundle" | cut -f 1)
((size_mib <= limit_mib)) || { echo "bundle: $bundle has $size_mib MiB, more than $limit_mib" >&2; exit 1; }
tar -C "$out" --owner=0 --group=0 --sort=name -czf "$bundle.tar.gz" "$name"
echo "$bundle.tar.gz  (unpacked $size_mib MiB)"
