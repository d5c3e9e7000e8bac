#!/bin/sh
# collector.sh: what a host without Python >= 3.6 can tell, for onecat.probe.importers. POSIX sh, no other needs.
#
# It prints sections, in any order:
#     ===== onecat: NAME
#     what NAME printed, or what the file of this name holds
#     ===== onecat: end NAME EXIT
# EXIT is the exit status, 127 for a program that is not there, or `timeout`. Sections that are no program and no file:
#     sysfs pci           ADDRESS NAME=VALUE, one attribute a line, for accelerators and the ports above them; `path` of a
#                         device is the addresses of those ports, the nearest first; `driver` its kernel driver
#     path PURPOSE=PATH   df -Pk of a path that the operator named, or of its nearest parent that exists
#     sudo                the word `refused`, when sudo was asked for and did not let
#
# A program that hangs costs only its own limit, even when it cannot be killed: nobody waits for it. All that may be slow
# runs side by side. Nothing is written to disk; nothing reads the standard input.

PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
LANGUAGE=C
export PATH LC_ALL LANGUAGE
timeout=10
paths=
refused=

while [ $# -gt 0 ]; do
    case $1 in
    --timeout) timeout=${2%%.*} && shift ;;
    --path) paths="$paths$2
" && shift ;;
    --sudo-refused) refused=1 ;;
    --host | --root | --smoke) shift ;;
    esac
    shift
done
[ "${timeout:-0}" -gt 0 ] 2>/dev/null || timeout=1

# limited PROGRAM [ARGUMENT...]: its output, then its end. The program is in the background of a part of a pipeline, so
# that no shell waits for it; what reads its output is ended when the time is over. Redirections are made by exec, because
# shells keep a copy of what a redirection of a group replaces, and the operator would wait for who has a copy.
limited() {
    {
        {
            exec </dev/null 2>&1
            # shellcheck disable=SC2016 # the inner shell's own number and arguments
            sh -c 'echo $$; exec "$@"' sh "$@"
            echo "===== onecat: end $name $?"
        } &
    } | {
        exec 3<&0 2>/dev/null
        IFS= read -r program
        cat <&3 &
        reader=$!
        (
            exec 3<&- >/dev/null
            while [ "$timeout" -gt 0 ] && kill -0 "$reader"; do
                sleep 1
                timeout=$((timeout - 1))
            done
            kill "$reader" && kill -9 "$program"
        ) &
        wait "$reader" || printf '\n===== onecat: end %s timeout\n' "$name"
    }
}

# section NAME PROGRAM [ARGUMENT...]: its section at once, when it has ended.
section() {
    name=$1
    shift
    if command -v "$1" >/dev/null 2>&1; then
        text=$(limited "$@")
    else
        text="===== onecat: end $name 127"
    fi
    printf '===== onecat: %s\n%s\n' "$name" "$text"
}

# files PATH...: a section for each one that can be read.
files() {
    for file in "$@"; do
        if [ -r "$file" ]; then
            printf '===== onecat: %s\n' "$file"
            cat "$file"
            printf '===== onecat: end %s %s\n' "$file" "$?"
        fi
    done
}

# together FUNCTION...: run them side by side, each one's output in one piece.
together() {
    first=$1
    shift
    if [ $# -eq 0 ]; then
        "$first"
    else
        "$first" | {
            together "$@"
            cat
        }
    fi
}

# attributes DEVICE_FOLDER: what sysfs says of a PCI function.
attributes() {
    for attribute in vendor device class numa_node current_link_width max_link_width current_link_speed max_link_speed; do
        if { IFS= read -r value <"$1/$attribute"; } 2>/dev/null; then
            printf '%s %s=%s\n' "${1##*/}" "$attribute" "$value"
        fi
    done
}

sysfs_pci() {
    echo "===== onecat: sysfs pci"
    for device in /sys/bus/pci/devices/*; do
        { IFS= read -r vendor <"$device/vendor" && IFS= read -r class <"$device/class"; } 2>/dev/null || continue
        case $vendor$class in 0x10de0x03* | 0x19e50x12*) ;; *) continue ;; esac
        attributes "$device"
        driver=$(cd -P "$device/driver" 2>/dev/null && pwd -P) && printf '%s driver=%s\n' "${device##*/}" "${driver##*/}"
        place=$(cd -P "$device" && pwd -P)
        above=
        while place=${place%/*} && [ -e "$place/vendor" ]; do
            above="$above ${place##*/}"
            attributes "$place"
        done
        printf '%s path=%s\n' "${device##*/}" "${above# }"
    done
    echo "===== onecat: end sysfs pci 0"
}

# What each path that the operator named has to do with: its nearest parent that exists.
named_paths() {
    printf '%s' "$paths" | while IFS= read -r pair; do
        place=${pair#*=}
        while [ ! -e "$place" ] && [ "$place" != "${place%/*}" ]; do place=${place%/*}; done
        section "path $pair" df -Pk "${place:-/}"
    done
}

nvidia_smi_q() { section "nvidia-smi -q" nvidia-smi -q; }
nvidia_smi_topo() { section "nvidia-smi topo -m" nvidia-smi topo -m; }
nvidia_smi_p2p() { section "nvidia-smi topo -p2p r" nvidia-smi topo -p2p r; }
npu_smi() { section "npu-smi info" npu-smi info; }
docker_info() { section "docker info" docker info; }
docker_version() { section "docker version" docker version; }
df_space() { section "df -Pk" df -Pk; }
df_inodes() { section "df -Pi" df -Pi; }
user() { section "id" id; }
toolkit_version() { section "nvidia-ctk --version" nvidia-ctk --version; }
nginx_version() { section "nginx -v" nginx -v; }
selinux() { section "getenforce" getenforce; }

# The newest lines about GPUs, PCI Express, memory, confinement and modules.
kernel_log() {
    words='nvrm|nvidia|nouveau|nvlink|aer:|pcieport|pciehp|pcie bus error|error status/mask|dmar|amd-vi|iommu|avc:|oom'
    words="$words|out of memory|no space for|assign|pci i/o region|invalid opcode|blocked for more than|module verification"
    words="$words|unsigned|required key|secure ?boot|lockdown|hardware error|npu|davinci|hisi|ascend"
    if dmesg >/dev/null 2>&1 </dev/null; then
        section "dmesg" sh -c "dmesg | grep -Ei '$words' | tail -n 4000"
    else
        section "journalctl -k" sh -c "journalctl -k -b -o short-monotonic --no-pager -q | grep -Ei '$words' | tail -n 4000"
    fi
}

# The variables that change what CUDA, NCCL, Docker and the engines do, without what is secret.
environment() {
    names='(CUDA|NCCL|NVIDIA|VLLM|HF|HUGGINGFACE|TRANSFORMERS|PYTORCH|TORCH|TRITON|ASCEND|HCCL|OMP|DOCKER)_[A-Z0-9_]*'
    names="$names|LD_LIBRARY_PATH|LD_PRELOAD|HTTPS?_PROXY|https?_proxy|NO_PROXY|no_proxy|ALL_PROXY|all_proxy"
    printf '===== onecat: env\n'
    env | grep -E "^($names)=" | sed -e 's#//[^/@ ]*@#//(hidden)@#g' \
        -e '/^[^=]*TOKEN/s/=.*/=(hidden)/' -e '/^[^=]*KEY/s/=.*/=(hidden)/' \
        -e '/^[^=]*SECRET/s/=.*/=(hidden)/' -e '/^[^=]*PASSWORD/s/=.*/=(hidden)/'
    printf '===== onecat: end env 0\n'
}

ports() {
    if command -v ss >/dev/null 2>&1; then
        section "ss -ltn" ss -ltn
    else
        files /proc/net/tcp /proc/net/tcp6
    fi
}

section "date +%s" date +%s
section "uname -a" uname -a
files /etc/os-release /proc/cpuinfo /proc/meminfo /proc/mounts /proc/modules /proc/cmdline
files /proc/driver/nvidia/version /proc/sys/kernel/osrelease /proc/self/limits
# shellcheck disable=SC3045 # every shell that is sh somewhere has it
printf '===== onecat: ulimit -a\n%s\n===== onecat: end ulimit -a 0\n' "$(ulimit -a)"
[ -z "$refused" ] || printf '===== onecat: sudo\nrefused\n===== onecat: end sudo 1\n'
environment
sysfs_pci
together nvidia_smi_q nvidia_smi_topo nvidia_smi_p2p npu_smi docker_info docker_version kernel_log \
    df_space df_inodes named_paths ports user selinux nginx_version toolkit_version
