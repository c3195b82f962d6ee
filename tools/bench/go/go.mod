module gumpbench

go 1.18
