# What a shell may complete. tools/gump reads this file for `gump complete`.
#
# candidates WORD...: prints what may stand in place of the last WORD, which may be empty, one candidate a line. Behind a tab
# stands what the candidate does. A line :files, :directories or :sources asks the shell for names of files, of
# directories, or of files that end in .cc.
#
# Commands and options come from the help, and names of examples, presets, models, mutants and workloads from the sources.
# So a new one needs no line here.

# words_of_help COMMAND: the words in the synopses of the command.
words_of_help() {
  usage | sed -nE "s/^  ($1( .*)?)$/\1/p" | sed -E 's/  .*//' | tr ' ' '\n'
}

commands_of_help() {
  # The text of a command stands behind it, or in the next line.
  usage | awk '
    name && /^ +[^ ]/ { sub(/^ +/, ""); print name "\t" $0; name = "" }
    /^  [a-z]/ {
      name = $1
      if (seen[name]++) { name = ""; next }
      text = $0
      if (sub(/^  .*[^ ]  +/, "", text)) { print name "\t" text; name = "" }
    }'
}

# options_of COMMAND: each option with its text.
options_of() {
  usage | awk -v command="$1" '
    /^  [a-z]/ { inside = $1 == command }
    inside && /^ +-[a-zA-Z-]+: / { option = $1; sub(/:$/, "", option); sub(/^ +[^ ]+ /, ""); text[option] = $0 }
    inside && /^  [a-z]/ {
      line = substr($0, 3)
      sub(/  .*/, "", line)
      while (match(line, /[[ ]-[a-zA-Z-]+/)) {
        all[substr(line, RSTART + 1, RLENGTH - 1)] = 1
        line = substr(line, RSTART + RLENGTH)
      }
    }
    END { for (o in text) all[o] = 1; for (o in all) print o "\t" text[o] }' | sort
}

names_of() {
  case $1 in
    COMPILER) printf '%s\n' g++ clang++ ;;
    EXAMPLE)
      sed -nE '/^foreach\(name IN ITEMS/,/\)$/p; s/^ *gump_(client_example|bridge)\((\w+) lib.*/\2/p' "$top/docs/examples/CMakeLists.txt" |
        sed -E 's/^foreach\(name IN ITEMS|\)$//g' | tr -s ' ' '\n' | grep .
      ;;
    PRESET) sed -nE 's/^ +\{"name": "([a-z-]+)", "configurePreset".*/\1/p' "$top/CMakePresets.json" ;;
    MODEL) grep -hoE '\.name = "\w+"' "$top"/tests/model/*.cc | sed -E 's/.*"(.*)"/\1/' | sort ;;
    MUTANT) sed -n 's/^== //p' "$top/tests/model/mutants.txt" ;;
    WORKLOAD) sed -nE 's/^ +Workload\("([^"]+)".*/\1/p' "$top/tools/bench/run.py" | sort -u ;;
  esac
}

# value_of COMMAND OPTION: what stands behind the option, such as NAME; nothing if it has no value.
value_of() {
  words_of_help "$1" | grep -A1 -E -- "^\[?$2$" | sed -n 2p | grep -E '^\[?[A-Z]+\]' | tr -d '[]' || true
}

# The command that the words of the line name, and which of its arguments the last word is.
candidates() {
  local last=${*: -1} command=${1:-} before='' position=0 word value
  if [ $# -le 1 ]; then
    commands_of_help
    return
  fi
  # Behind `trace --live PROGRAM`, `run FILE.cc` and `demo EXAMPLE` stand words of the program.
  for word in "${@:2:$#-2}"; do
    if [[ $word != -* && ! $before =~ ^(-o|-R|--preset|--repeat|--reps|--replay|--procs|--top)$ ]]; then position=$((position + 1)); fi
    before=$word
  done
  if [[ $before == -* ]]; then
    value=$(value_of "$command" "$before")
    case $command,$before,$value in
      test,--preset,*) names_of PRESET && return ;;
      *,-o,*) echo :files && return ;;
      *,*,?*) if [ "$command" != clients ]; then return; fi ;; # a number or a pattern
    esac
  fi
  if [[ $last == -* ]]; then
    options_of "$command"
    return
  fi
  case $command,$position in
    build,0) names_of PRESET ;;
    demo,0) names_of EXAMPLE ;;
    run,0) echo :sources ;;
    install,0 | package,0 | site,0) echo :directories ;;
    trace,0) echo :files ;;
    model,*) names_of MODEL ;;
    mutants,*) names_of MUTANT ;;
    bench,*) names_of WORKLOAD ;;
    flags,* | matrix,*) names_of COMPILER ;;
    demo,* | run,* | trace,*) echo :files ;;
  esac
}
