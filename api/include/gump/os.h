// Package os has files and pipes, and a poll(2) for goroutines.
//
//   gump/os/file.h       File, Open, Create, OpenFile, Pipe, NewFile, Stdin,
//                        Stdout, Stderr, ReadFile, WriteFile
//   gump/os/file_info.h  FileInfo, the result of File::Stat
//   gump/os/poll.h       Poll, which is poll(2) for goroutines
//
// Source: package os of Go.
#ifndef GUMP_OS_H_
#define GUMP_OS_H_

#include "gump/os/file.h"       // IWYU pragma: export
#include "gump/os/file_info.h"  // IWYU pragma: export
#include "gump/os/poll.h"       // IWYU pragma: export

#endif  // GUMP_OS_H_
