# Completion of tools/gump, and of an installed gump, for bash: source this file. The command that is typed knows what there
# is (`gump complete`).
_gump() {
  local gump=${COMP_WORDS[0]/#\~/$HOME} word=${COMP_WORDS[COMP_CWORD]} line candidates=()
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      :files) compopt -o filenames && mapfile -t COMPREPLY < <(compgen -f -- "$word") && return ;;
      :directories) compopt -o filenames && mapfile -t COMPREPLY < <(compgen -d -- "$word") && return ;;
      :sources)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -d -- "$word"; compgen -f -X '!*.cc' -- "$word")
        return
        ;;
      *) candidates+=("${line%%$'\t'*}") ;;
    esac
  done < <("$gump" complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  mapfile -t COMPREPLY < <(compgen -W "${candidates[*]}" -- "$word")
}
complete -F _gump gump
