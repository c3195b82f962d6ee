/* The context switch on AArch64, AAPCS64. The design is that of asm_amd64.S, step by step; read that file first.
 *
 * A context that is not running is a stack pointer. It points at this frame, which gumpMcall stored:
 *
 *     sp+160 fpcr      sp+168 unused
 *     sp+144 d14 d15   sp+128 d12 d13   sp+112 d10 d11   sp+96 d8 d9
 *     sp+80  x27 x28   sp+64  x25 x26   sp+48  x23 x24   sp+32 x21 x22   sp+16 x19 x20
 *     sp+8   x30: return address into gumpMcall's caller
 *     sp+0   x29: with x30 a frame record, so that the chain of frame pointers leads into a parked goroutine
 *
 * No other register survives a call in this ABI. Of v8 to v15 only the low halves survive, d8 to d15. x18 belongs to
 * the platform and is not touched. x30 is stored without a signature (pointer authentication).
 *
 * Each function begins with `bti c`. The property note at the end says that indirect branches go only to such places.
 */
#include "runtime/sys/asm_offsets.h"

#define FRAME_SIZE 176
#define FRAME_FPCR 160

#define CFI_SAVED_FRAME                 \
	.cfi_def_cfa sp, FRAME_SIZE;    \
	.cfi_offset x29, -176;          \
	.cfi_offset x30, -168;          \
	.cfi_offset x19, -160;          \
	.cfi_offset x20, -152;          \
	.cfi_offset x21, -144;          \
	.cfi_offset x22, -136;          \
	.cfi_offset x23, -128;          \
	.cfi_offset x24, -120;          \
	.cfi_offset x25, -112;          \
	.cfi_offset x26, -104;          \
	.cfi_offset x27, -96;           \
	.cfi_offset x28, -88;           \
	.cfi_offset d8, -80;            \
	.cfi_offset d9, -72;            \
	.cfi_offset d10, -64;           \
	.cfi_offset d11, -56;           \
	.cfi_offset d12, -48;           \
	.cfi_offset d13, -40;           \
	.cfi_offset d14, -32;           \
	.cfi_offset d15, -24

/* End of stack: no caller to unwind to. */
#define CFI_OUTERMOST                   \
	.cfi_def_cfa sp, 0;             \
	.cfi_undefined x29;             \
	.cfi_undefined x30

.macro PUSH_FRAME
	stp	x29, x30, [sp, #-FRAME_SIZE]!
	.cfi_def_cfa_offset FRAME_SIZE
	.cfi_offset x29, -176
	.cfi_offset x30, -168
	stp	x19, x20, [sp, #16]
	stp	x21, x22, [sp, #32]
	stp	x23, x24, [sp, #48]
	stp	x25, x26, [sp, #64]
	stp	x27, x28, [sp, #80]
	stp	d8, d9, [sp, #96]
	stp	d10, d11, [sp, #112]
	stp	d12, d13, [sp, #128]
	stp	d14, d15, [sp, #144]
	CFI_SAVED_FRAME
	mrs	x9, fpcr
	str	x9, [sp, #FRAME_FPCR]
	mov	x29, sp
.endm

/* Clobbers x9, x10. FPCR is written only if it differs, because writing it drains the pipeline on many cores. */
.macro POP_FRAME_AND_RET
	ldr	x9, [sp, #FRAME_FPCR]
	mrs	x10, fpcr
	cmp	x9, x10
	b.eq	1f
	msr	fpcr, x9
1:
	ldp	d14, d15, [sp, #144]
	ldp	d12, d13, [sp, #128]
	ldp	d10, d11, [sp, #112]
	ldp	d8, d9, [sp, #96]
	ldp	x27, x28, [sp, #80]
	ldp	x25, x26, [sp, #64]
	ldp	x23, x24, [sp, #48]
	ldp	x21, x22, [sp, #32]
	ldp	x19, x20, [sp, #16]
	ldp	x29, x30, [sp], #FRAME_SIZE
	.cfi_def_cfa sp, 0
	.cfi_restore x29
	.cfi_restore x30
	.cfi_restore x19
	.cfi_restore x20
	.cfi_restore x21
	.cfi_restore x22
	.cfi_restore x23
	.cfi_restore x24
	.cfi_restore x25
	.cfi_restore x26
	.cfi_restore x27
	.cfi_restore x28
	.cfi_restore d8
	.cfi_restore d9
	.cfi_restore d10
	.cfi_restore d11
	.cfi_restore d12
	.cfi_restore d13
	.cfi_restore d14
	.cfi_restore d15
	ret
.endm

/* \reg = the address of this thread's gumpTlsG. Clobbers \tmp. */
.macro TLS_G reg, tmp
	adrp	\reg, :gottprel:gumpTlsG
	ldr	\reg, [\reg, :gottprel_lo12:gumpTlsG]
	mrs	\tmp, tpidr_el0
	add	\reg, \reg, \tmp
.endm

	.text
	.hidden	gumpStartFpcr

/* void gumpMcall(G* (*fn)(G*)) */
	.globl	gumpMcall
	.type	gumpMcall, %function
	.p2align 4
gumpMcall:
	.cfi_startproc
	hint	#34				/* bti c */
	PUSH_FRAME
	TLS_G	x9, x10
	ldr	x20, [x9]			/* x20 = gp, the goroutine that we leave */
	mov	x11, sp
	str	x11, [x20, #GUMP_G_SCHED_SP]	/* its context is complete from here on */
	ldr	x19, [x20, #GUMP_G_M]		/* x19 = g0, at the same address as m */
	mov	x21, x0				/* fn */
#if GUMP_M_G0 != 0
#error "g0 is the first member of M, so that one register serves for both"
#endif
#ifdef GUMP_SANITIZE
	mov	x0, x20
	mov	x1, x19
	bl	gumpSanLeave
	TLS_G	x9, x10
#endif
	str	x19, [x9]			/* g0 is now current ... */
	ldr	x11, [x19, #GUMP_G_SCHED_SP]
	mov	sp, x11				/* ... on its stack */
	CFI_OUTERMOST
#ifdef GUMP_SANITIZE
	mov	x0, x19
	bl	gumpSanArrive
#endif
	mov	x0, x20
	mov	x1, x21
.Lrun:						/* x0 = gp, x1 = fn, x19 = g0 */
	mov	x29, xzr			/* end of the frame-pointer chain */
	bl	gumpOnG0			/* x0 = the G to run next, or nullptr */
	cbz	x0, .Lexit
#ifdef GUMP_SANITIZE
	mov	x20, x0
	mov	x1, x0
	mov	x0, x19
	bl	gumpSanLeave
	mov	x0, x20
#endif
	TLS_G	x9, x10
	str	x0, [x9]
	ldr	x11, [x0, #GUMP_G_SCHED_SP]
	ldr	x12, [x0, #GUMP_G_SCHED_FRESH]
	cbnz	x12, .Lfresh
	mov	sp, x11				/* from here on we are the resumed goroutine */
	CFI_SAVED_FRAME
#ifdef GUMP_SANITIZE
	bl	gumpSanArrive
#endif
	add	x9, x19, #GUMP_M_LOCKS
	stlr	wzr, [x9]			/* preemptible from here on */
	.cfi_remember_state
	POP_FRAME_AND_RET
	.cfi_restore_state

.Lfresh:
	CFI_OUTERMOST
	str	xzr, [x0, #GUMP_G_SCHED_FRESH]
	mov	sp, x11				/* top of an empty stack, 16-byte aligned */
	adrp	x10, gumpStartFpcr		/* the modes of the thread of Run (fpmodes.h) */
	ldr	w10, [x10, :lo12:gumpStartFpcr]
	mrs	x9, fpcr
	cmp	x9, x10
	b.eq	gumpGostart
	msr	fpcr, x10
	b	gumpGostart

.Lexit:						/* leave the scheduler: g0's own frame */
	CFI_SAVED_FRAME
	POP_FRAME_AND_RET
	.cfi_endproc
	.size	gumpMcall, .-gumpMcall

/* void gumpSwitch(G* from, G* to, void (*commit)(G*, M*)) */
	.globl	gumpSwitch
	.type	gumpSwitch, %function
	.p2align 4
gumpSwitch:
	.cfi_startproc
	hint	#34				/* bti c */
	PUSH_FRAME
	mov	x11, sp
	str	x11, [x0, #GUMP_G_SCHED_SP]	/* its context is complete from here on */
	mov	x20, x1				/* x20 = to */
	ldr	x19, [x20, #GUMP_G_M]		/* x19 = g0, at the same address as m */
	mov	x1, x19
	TLS_G	x9, x10
	str	x20, [x9]			/* `to` is now current ... */
	ldr	x11, [x20, #GUMP_G_SCHED_SP]
	ldr	x12, [x20, #GUMP_G_SCHED_FRESH]
	mov	x29, xzr
	cbnz	x12, .Lswitchfresh
	mov	sp, x11				/* ... on its stack */
	CFI_SAVED_FRAME
	blr	x2				/* commit(from, m) */
	add	x9, x19, #GUMP_M_LOCKS
	stlr	wzr, [x9]			/* preemptible from here on */
	.cfi_remember_state
	POP_FRAME_AND_RET
	.cfi_restore_state
.Lswitchfresh:
	CFI_OUTERMOST
	mov	sp, x11				/* top of an empty stack, 16-byte aligned */
	blr	x2
	mov	x0, x20
	ldr	x11, [x0, #GUMP_G_SCHED_SP]
	b	.Lfresh
	.cfi_endproc
	.size	gumpSwitch, .-gumpSwitch

/* void gumpMstart(G* g0, G* (*fn)(G*)) */
	.globl	gumpMstart
	.type	gumpMstart, %function
	.p2align 4
gumpMstart:
	.cfi_startproc
	hint	#34				/* bti c */
	PUSH_FRAME
	mov	x11, sp
	str	x11, [x0, #GUMP_G_SCHED_SP]	/* each gumpMcall of this M goes to this frame; .Lexit pops it */
	mov	x19, x0
	b	.Lrun				/* gumpOnG0(g0, fn) */
	.cfi_endproc
	.size	gumpMstart, .-gumpMstart

/* void gumpGostart(): x0 = gp, x19 = m, on gp's empty stack */
	.globl	gumpGostart
	.type	gumpGostart, %function
	.p2align 4
gumpGostart:
	.cfi_startproc
	CFI_OUTERMOST
	hint	#34				/* bti c */
	mov	x29, xzr
	mov	x30, xzr
#ifdef GUMP_SANITIZE
	mov	x20, x0
	bl	gumpSanArrive
	mov	x0, x20
#endif
	add	x9, x19, #GUMP_M_LOCKS
	stlr	wzr, [x9]			/* preemptible from here on */
	/* The first function saves these on the stack, where they stay until the goroutine ends. They have values of the
	   goroutine before, such as addresses in its stack, which would hide leaks (leaks.cc). */
	mov	x19, xzr
	mov	x20, xzr
	mov	x21, xzr
	mov	x22, xzr
	mov	x23, xzr
	mov	x24, xzr
	mov	x25, xzr
	mov	x26, xzr
	mov	x27, xzr
	mov	x28, xzr
	bl	gumpGoroutineMain
	brk	#1
	.cfi_endproc
	.size	gumpGostart, .-gumpGostart

/* void gumpCallSaved(void (*fn)(G*), G* gp)
 * While fn runs, gp's saved context is that of our caller. It describes the stack that the caller is on, and is never
 * resumed. */
	.globl	gumpCallSaved
	.type	gumpCallSaved, %function
	.p2align 4
gumpCallSaved:
	.cfi_startproc
	hint	#34				/* bti c */
	PUSH_FRAME
	mov	x9, sp
	str	x9, [x1, #GUMP_G_SCHED_SP]
	mov	x9, x0
	mov	x0, x1
	blr	x9
	POP_FRAME_AND_RET
	.cfi_endproc
	.size	gumpCallSaved, .-gumpCallSaved

/* void gumpCallAtop(uintptr_t sp, void (*fn)(void*), void* arg)
 * fn runs on our own stack, but an unwinder goes on from it to the frame saved at sp, and so to the function that saved
 * that frame. */
	.globl	gumpCallAtop
	.type	gumpCallAtop, %function
	.p2align 4
gumpCallAtop:
	.cfi_startproc
	hint	#34				/* bti c */
	PUSH_FRAME
	mov	x19, x0
	.cfi_remember_state
	.cfi_def_cfa x19, FRAME_SIZE
	mov	x0, x2
	blr	x1
	.cfi_restore_state
	POP_FRAME_AND_RET
	.cfi_endproc
	.size	gumpCallAtop, .-gumpCallAtop

	.section .note.GNU-stack,"",%progbits

/* GNU_PROPERTY_AARCH64_FEATURE_1_AND: BTI */
	.section .note.gnu.property,"a",%note
	.p2align 3
	.word	4, 16, 5
	.asciz	"GNU"
	.word	0xc0000000, 4, 1, 0
