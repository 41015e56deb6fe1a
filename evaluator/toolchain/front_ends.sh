# nvcc for one file, with both front ends at the same time: cudafe++ for the host, cicc for the GPU.
# Usage: front_ends.sh OBJECT NVCC FLAG... -c FILE -o OBJECT
#
# The programs and their flags are those of `nvcc --dryrun`. The one difference is the module id, which keeps names of
# two objects apart. cudafe++ would write the id to a file that cicc reads; here the command and the text determine it,
# and both read the file. Any other plan than the expected seven programs, and relocatable device code, runs as plain
# nvcc.

object=$1
shift
parts=$object.parts
rm -rf -- "$parts"
mkdir -p -- "$parts" || exit 1
before=
for source; do
    [ "$before" = -c ] && break
    before=$source
done

"$@" --dryrun --keep --keep-dir "$parts" 2>"$parts/plan" || exec "$@"

# Print the plan's only line with a given beginning and end, without other text around; fail for none or several.
line() {
    sed -n "s/^#\\\$ \\($1.*$2\\) *\$/\\1/p" "$parts/plan" >"$parts/found"
    [ "$(wc -l <"$parts/found")" -eq 1 ] && cat -- "$parts/found"
}
compiler='"[^"]*"\/[^ ]* '
host_text=$(line "$compiler" '\.cpp4\.ii"') &&
    host_front=$(line 'cudafe++ ' '\.cpp4\.ii"') &&
    device_text=$(line "$compiler" '\.cpp1\.ii"') &&
    device_front=$(line '"$CICC_PATH\/cicc" ' '\.ptx"') &&
    assembler=$(line 'ptxas ' '\.cubin"') &&
    bundle=$(line 'fatbinary ' '\.fatbin\.c"') &&
    host=$(line "$compiler" ' -c .*\.cudafe1\.cpp" -o "[^"]*"') &&
    module_id=$(printf '%s\n' "$host_front" | sed -n 's/.* --gen_module_id_file --module_id_file_name "\([^"]*\)" .*/\1/p') &&
    [ -n "$module_id" ] &&
    ! grep -q -e ' --device-c ' -e ' -rdc' "$parts/plan" &&
    [ "$(grep -c '^#\$ ' "$parts/plan")" -eq $((7 + $(grep -c '^#\$ [A-Z_]*=' "$parts/plan"))) ] ||
    { rm -rf -- "$parts"; exec "$@"; }

grep -v '^#\$ ' "$parts/plan" >&2
cicc_path=$(sed -n 's/^#\$ CICC_PATH=//p' "$parts/plan")
search=$(sed -n 's/^#\$ PATH=//p' "$parts/plan")
libraries=$(sed -n 's/^#\$ LD_LIBRARY_PATH=//p' "$parts/plan")
device_library=$(sed -n 's/^#\$ NVVMIR_LIBRARY_DIR=//p' "$parts/plan")
export CICC_PATH="$cicc_path" PATH="$search" LD_LIBRARY_PATH="$libraries" NVVMIR_LIBRARY_DIR="$device_library"
set -- "$(printf '%s ' "$@" | cat - "$source" | cksum)"
printf '_warpgrade_%s_' "$(printf %s "$1" | tr ' ' _)" >"$module_id"
host_front=$(printf '%s\n' "$host_front" | sed 's/ --gen_module_id_file / /')

# Run commands until the first failure; name a killed program as nvcc does.
each() {
    for command; do
        eval "$command"
        status=$?
        # A shell adds 128 to the number of a signal; ptxas itself ends with 255.
        [ $status -gt 128 ] && [ $status -le 192 ] && echo "nvcc error   : a program died due to signal $((status - 128))"
        [ $status -eq 153 ] && echo "File size limit exceeded"
        [ $status -eq 0 ] || return $status
    done
}
each "$host_text" "$host_front" >"$parts/host" 2>&1 &
each "$device_text" "$device_front" "$assembler" "$bundle" >"$parts/device" 2>&1
device_status=$?
wait $!
host_status=$?
cat -- "$parts/host"
# nvcc starts cicc after cudafe++ succeeded; both report most errors of a text.
[ $host_status -eq 0 ] || exit $host_status
cat -- "$parts/device"
[ $device_status -eq 0 ] || exit $device_status
each "$host"
status=$?
rm -rf -- "$parts"
exit $status
