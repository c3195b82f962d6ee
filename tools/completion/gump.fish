# Completion of tools/gump, and of an installed gump, for fish: put this file into a directory of $fish_complete_path. The
# command that is typed knows what there is (`gump complete`).
function __gump_candidates
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l gump (string replace -r '^~' $HOME -- $words[1])
    for line in ($gump complete $words[2..-1] "$word" 2>/dev/null)
        switch $line
            case :files
                __fish_complete_path "$word"
            case :directories
                __fish_complete_directories "$word"
            case :sources
                __fish_complete_suffix .cc
            case '*'
                echo $line
        end
    end
end
complete -c gump -f -a '(__gump_candidates)'
