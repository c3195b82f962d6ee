// Package net has connections, listeners and datagram sockets. A call that has
// to wait parks the goroutine, and its thread runs other goroutines.
//
//   gump/net/addr.h         Addr
//   gump/net/conn.h         Conn, Pipe, FileConn
//   gump/net/dial.h         DialOptions, Dial, DialTimeout, DialContext
//   gump/net/listener.h     Listener, ListenOptions, Listen, FileListener
//   gump/net/lookup.h       LookupHost, ResolveAddr
//   gump/net/packet_conn.h  PacketConn, ListenPacket
//
// Networks are "tcp", "tcp4", "tcp6", "udp", "udp4", "udp6", "unix" and
// "unixgram". Addresses are written as in Go: "host:port", ":8080" (all
// interfaces), "[::1]:80", "127.0.0.1:0" (any free port), and for unix sockets
// a path, or "@name" in the abstract name space. A port may be the name of a
// service. A string is used up to its end, not up to its first NUL byte. A host
// or service whose name contains a NUL byte is not found. A path that contains
// one is the error "invalid argument".
//
// Conn, Listener and PacketConn are cheap handles: a copy is the same socket.
// The socket is closed by Close, or when its last handle is destroyed. Every
// function may be called from goroutines and from plain threads, several at a
// time.
//
// Requires: the handle is not default-constructed. Such a handle is nil, and
// using it is the panic "invalid memory address or nil pointer dereference".
// There are at most 1,048,575 operations on one socket at a time; one more is a
// panic, too.
//
// Errors are values with Go's texts, such as "dial tcp 127.0.0.1:1: connect:
// connection refused". They carry the errno if there is one (gump::Errno). Two
// errors have codes of their own: DeadlineExceeded "i/o timeout" and Cancelled
// "use of closed network connection". Functions throw std::bad_alloc if there
// is no memory.
//
// Source: Go's package net.
#ifndef GUMP_NET_H_
#define GUMP_NET_H_

#include "gump/net/addr.h"         // IWYU pragma: export
#include "gump/net/conn.h"         // IWYU pragma: export
#include "gump/net/dial.h"         // IWYU pragma: export
#include "gump/net/listener.h"     // IWYU pragma: export
#include "gump/net/lookup.h"       // IWYU pragma: export
#include "gump/net/packet_conn.h"  // IWYU pragma: export

#endif  // GUMP_NET_H_
