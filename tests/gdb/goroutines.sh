#!/usr/bin/env bash
# goroutines.sh DEBUGGED SCRIPT: gdb shows the goroutines, the scheduler and the variables of a program. It does so in the
# live process, in a core, and in a core without debug information.
# Exit code 77: there is no gdb that knows Python, or it may not trace anything here.
set -euo pipefail

program=$1 script=$2
command -v gdb >/dev/null && gdb -nx -batch -ex 'python print(1)' >/dev/null 2>&1 || exit 77

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0

# debug COMMAND... -- ARGUMENT...: runs commands of gdb. The script comes with the program, so gdb must trust it.
debug() {
  local commands=()
  while [ "$1" != -- ]; do commands+=(-ex "$1"); shift; done
  shift
  timeout 100 gdb -nx -batch -iex 'set debuginfod enabled off' -iex 'add-auto-load-safe-path /' -iex 'set width 0' \
    -iex 'set confirm off' -ex 'handle SIGURG nostop noprint pass' -ex 'echo ==\n' "${commands[@]}" "$@" \
    </dev/null >"$dir/all" 2>&1 || true
  if grep -qE 'ptrace: |Could not trace' "$dir/all"; then cat "$dir/all"; exit 77; fi
  sed '0,/^==$/d' "$dir/all" >"$dir/out"  # without what gdb says when it opens a core
}

# has TEXT: a line of the last output matches the extended regular expression.
has() {
  grep -qE -- "$1" "$dir/out" && return
  echo "not found: $1"
  failures=$((failures + 1))
}

# lacks TEXT: no line does.
lacks() {
  grep -qE -- "$1" "$dir/out" || return 0
  echo "found: $1"
  failures=$((failures + 1))
}

# The number of the first goroutine of the list that matches $1.
number() { grep -E -- "$1" "$dir/list" | head -1 | sed -E 's/^[ *]*([0-9]+).*/\1/'; }

report() {
  [ $failures -eq 0 ] || { echo "in: $1"; cat "$dir/out"; exit 1; }
}

check_list() {
  has '^\* 1 +running \(thread [0-9]+\) +Ready'
  has '^ +[0-9]+ +chan receive +shop::Serve.* \{name: server\}$'
  has '^ +[0-9]+ +sync\.Mutex\.Lock +shop::WaitForMutex'
  has '^ +[0-9]+ +sleep +main::.* \{op: sleep, tenant: acme\}$'
  has '^ +[0-9]+ +sleep, on thread "gui" +main::'
  has '^ +[0-9]+ +sleep, group "batch" +main::'
  has '^ +[0-9]+ +syscall \(thread [0-9]+\) +shop::BlockInTheKernel'
  has '^ +[0-9]+ +running \(thread [0-9]+\) +shop::Compute'
  has '^ +[0-9]+ +runnable +not begun$'
  has '^29 goroutines$'
  lacks 'Python Exception|Error'
}

# ---- A live process
debug 'break Ready' run 'info goroutines' 'echo ==locals\n' up 'info locals' 'echo ==core\n' "gump gcore $dir/core" kill -- "$program"
sed '/==locals/q' "$dir/out" >"$dir/list"
check_list
has '^orders = chan<int> len 0 cap 0, 20 wait to receive \(goroutines [0-9]+, '
has '^nil_channel = chan<int> nil$'
has '^buffered = chan<int> len 2 cap 4 = \{11, 22\}$'
has '^closed = chan<int> len 0 cap 1, closed$'
has '^mutex = Mutex locked, 1 wait$'
has '^free_mutex = Mutex unlocked$'
has '^rwmutex = RWMutex locked by 1 reader$'
has '^wg = WaitGroup 3, 1 wait$'
has '^background = context\.Background$'
has '^canceled = context canceled$'
has '^live = context live, deadline 2100-01-01 00:00:00\.000 UTC$'
has '^with_value = context live, 1 value$'
has '^ok = OK$'
has '^not_found = NOT_FOUND: no such order$'
has '^code_only = ABORTED$'
report 'a live process'

# ---- The core of that process
server=$(number 'shop::Serve')
locker=$(number 'shop::WaitForMutex')
computing=$(number 'shop::Compute')
kernel=$(number 'shop::BlockInTheKernel')
new=$(number 'not begun')
debug 'info goroutines' 'info goroutines -group state' 'info goroutines -group where' 'info goroutines -group maker' \
  'info goroutines -with Mutex' 'info goroutines -system' 'gump sched' 'goroutine 4711 bt' goroutine \
  'info goroutines -nonsense' 'goroutine apply all bt 1' -- "$program" "$dir/core"
check_list
has '^20 goroutines: chan receive$'
has '^    \.\.\. and 15 more$'
has '^1 goroutine: sync\.Mutex\.Lock$'
has '^20 goroutines: shop::Serve at debugged\.cc:[0-9]+$'
has '^28 goroutines: main::.* in goroutine 1$'
has '^1 goroutine$'  # with Mutex
has '^SCHED gomaxprocs=2 idleprocs=0 threads=[0-9]+ '
has '^  P0: status=running '
has '^  M[0-9]+: tid=[0-9]+ p=[01] curg=1 '
has 'gump: there is no goroutine 4711'
has '^usage: goroutine N'
has '^usage: info goroutines'
[ "$(grep -cE '^goroutine [0-9]+ \[' "$dir/out")" -eq 29 ] || { echo 'apply all: not 29'; failures=1; }
report 'lists of a core'

debug "goroutine $locker" "goroutine $locker bt" "goroutine $computing bt" "goroutine $kernel bt" "goroutine $new bt" \
  "goroutine apply $server $locker-$locker bt" -- "$program" "$dir/core"
has "^goroutine $locker \[sync\.Mutex\.Lock\]$"
has '^  at shop::WaitForMutex at debugged\.cc:[0-9]+$'
has '^  created by main::.* in goroutine 1$'
has '^#1 .*semacquire'
has '^#[0-9]+ .*shop::WaitForMutex'
has '^#[0-9]+ .*gumpGostart'
has '^#[0-9]+ .*shop::Compute'
has '^#[0-9]+ .*shop::BlockInTheKernel'
has "goroutine $new has not begun"
has "^goroutine $server \[chan receive\] \{name: server\}:$"
has "^goroutine $locker \[sync\.Mutex\.Lock\]:$"
has '^#[0-9]+ .*shop::Serve'
report 'stacks of a core'

frame=$(sed -nE 's/^#([0-9]+) .*shop::WaitForMutex.*/\1/p' "$dir/out" | head -1)
debug "goroutine $locker frame $frame" "goroutine $locker bt 2" 'echo ==bt\n' 'bt 1' -- "$program" "$dir/core"
has 'mu->Lock\(\);'
has '^#2 '
lacks '^#3 .*gump::sync'
[[ $(sed '0,/^==bt/d' "$dir/out") == '#0  Ready'* ]] || { echo 'the selected frame has changed'; failures=1; }
report 'a frame of a core'

# ---- Without debug information, and before the start
strip --strip-debug -o "$dir/stripped" "$program"
debug "source $script" 'info goroutines' "goroutine $locker bt" -- "$dir/stripped" "$dir/core"
has '^ +[0-9]+ +chan receive +shop::Serve \{name: server\}$'
has '^29 goroutines$'
has '^#[0-9]+ .*shop::WaitForMutex'
debug 'info goroutines' -- "$program"
has '^0 goroutines$'
debug "source $script" 'info goroutines' -- /bin/true
has 'there is no gump_rt_layout'
report 'no debug information'
