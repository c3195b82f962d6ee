/* The context switch on x86-64, System V ABI.
 *
 * A context that is not running is a stack pointer. It points at this frame, which gumpMcall pushed:
 *
 *     sp+56  return address into gumpMcall's caller        = CFA-8
 *     sp+48  rbp      sp+40  rbx      sp+32  r12
 *     sp+24  r13      sp+16  r14      sp+8   r15
 *     sp+4   x87 control word         sp+0   mxcsr
 *
 * No other register survives a call in this ABI, and gumpMcall is a call. The signal mask belongs to the thread and
 * stays.
 *
 * The path from one goroutine to the next is one call. gumpMcall saves the old goroutine, calls gumpOnG0 on the
 * scheduler's stack, and resumes the goroutine that gumpOnG0 returns, with `ret`. Calls and returns stay paired. The
 * processor's return predictor still holds the return addresses of the old goroutine. They are right for the new
 * goroutine as well, if it parked through the same functions.
 *
 * There is no GNU property note for shadow stacks, so linking this object switches them off for the program.
 */
#include "runtime/sys/asm_offsets.h"

#define MXCSR_CONTROL 0xffc0

#define CFI_SAVED_FRAME                 \
	.cfi_def_cfa %rsp, 64;          \
	.cfi_offset %rip, -8;           \
	.cfi_offset %rbp, -16;          \
	.cfi_offset %rbx, -24;          \
	.cfi_offset %r12, -32;          \
	.cfi_offset %r13, -40;          \
	.cfi_offset %r14, -48;          \
	.cfi_offset %r15, -56

/* End of stack: no caller to unwind to. */
#define CFI_OUTERMOST                   \
	.cfi_def_cfa %rsp, 8;           \
	.cfi_undefined %rip;            \
	.cfi_undefined %rbp

.macro PUSH_FRAME
	pushq	%rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbp, 0
	pushq	%rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbx, 0
	pushq	%r12
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r12, 0
	pushq	%r13
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r13, 0
	pushq	%r14
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r14, 0
	pushq	%r15
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r15, 0
	subq	$8, %rsp
	.cfi_adjust_cfa_offset 8
	stmxcsr	(%rsp)
	fnstcw	4(%rsp)
.endm

.macro POP_FRAME_AND_RET
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	popq	%r15
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r15
	popq	%r14
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r14
	popq	%r13
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r13
	popq	%r12
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r12
	popq	%rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbx
	popq	%rbp
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbp
	ret
.endm

	.text
	.hidden	gumpStartMxcsr, gumpStartX87cw

/* void gumpMcall(G* (*fn)(G*)) */
	.globl	gumpMcall
	.type	gumpMcall, @function
	.p2align 4
gumpMcall:
	.cfi_startproc
	endbr64
	PUSH_FRAME
	movq	gumpTlsG@gottpoff(%rip), %rcx
	movq	%fs:(%rcx), %rax		/* rax = gp, the goroutine that we leave */
	movq	%rsp, GUMP_G_SCHED_SP(%rax)	/* its context is complete from here on */
	movq	GUMP_G_M(%rax), %rdx
	movl	(%rsp), %esi			/* the current control words, compared on resumption */
	movl	%esi, GUMP_M_MXCSR(%rdx)
	movzwl	4(%rsp), %esi
	movl	%esi, GUMP_M_X87CW(%rdx)
#if GUMP_M_G0 != 0
#error "g0 is the first member of M, so that one register serves for both"
#endif
#ifdef GUMP_SANITIZE
	movq	%rdi, %r14			/* saved above; free to use */
	movq	%rax, %rbx
	movq	%rdx, %r13
	movq	%rax, %rdi
	movq	%rdx, %rsi
	call	gumpSanLeave
	movq	%r14, %rdi
	movq	%rbx, %rax
	movq	%r13, %rdx
	movq	gumpTlsG@gottpoff(%rip), %rcx
#endif
	movq	%rdx, %fs:(%rcx)		/* g0 is now current ... */
	movq	GUMP_G_SCHED_SP(%rdx), %rsp	/* ... on its stack */
	CFI_OUTERMOST
#ifdef GUMP_SANITIZE
	movq	%r13, %rdi
	call	gumpSanArrive
	movq	%r14, %rdi
	movq	%rbx, %rax
	movq	%r13, %rdx
#endif
	movq	%rdx, %r12			/* keeps g0 across the call; m is at the same address */
	movq	%rdi, %rsi			/* fn */
	movq	%rax, %rdi			/* gp */
.Lrun:
	xorl	%ebp, %ebp			/* end of the frame-pointer chain */
	call	gumpOnG0			/* rax = the G to run next, or nullptr */
	testq	%rax, %rax
	jz	.Lexit
#ifdef GUMP_SANITIZE
	movq	%rax, %rbx
	movq	%r12, %rdi			/* g0 */
	movq	%rax, %rsi
	call	gumpSanLeave
	movq	%rbx, %rax
#endif
	movq	gumpTlsG@gottpoff(%rip), %rcx
	movq	%rax, %fs:(%rcx)
	cmpq	$0, GUMP_G_SCHED_FRESH(%rax)
	jne	.Lfresh
	movq	GUMP_G_SCHED_SP(%rax), %rsp	/* from here on we are the resumed goroutine */
	CFI_SAVED_FRAME
#ifdef GUMP_SANITIZE
	movq	%rax, %rdi
	call	gumpSanArrive
#endif
	movl	$0, GUMP_M_LOCKS(%r12)		/* preemptible from here on */
	/* Control words are loaded only if they differ from the current ones, which the last goroutine left. Loading
	   them is slow. Reading them is slow too, so the M keeps a copy of the current ones. */
	movl	(%rsp), %edx
	xorl	GUMP_M_MXCSR(%r12), %edx
	testl	$MXCSR_CONTROL, %edx
	jnz	.Lloadmxcsr
.Lmxcsrdone:
	movzwl	4(%rsp), %edx
	cmpl	GUMP_M_X87CW(%r12), %edx
	jne	.Lloadx87
.Lx87done:
	.cfi_remember_state
	POP_FRAME_AND_RET
	.cfi_restore_state
.Lloadmxcsr:
	ldmxcsr	(%rsp)
	jmp	.Lmxcsrdone
.Lloadx87:
	fldcw	4(%rsp)
	jmp	.Lx87done

.Lfresh:
	CFI_OUTERMOST
	movq	$0, GUMP_G_SCHED_FRESH(%rax)
	movq	GUMP_G_SCHED_SP(%rax), %rsp	/* top of an empty stack, 16-byte aligned */
	/* A goroutine begins with the control words of the thread of Run (fpmodes.h). */
	movl	GUMP_M_MXCSR(%r12), %edx
	xorl	gumpStartMxcsr(%rip), %edx
	testl	$MXCSR_CONTROL, %edx
	jz	1f
	ldmxcsr	gumpStartMxcsr(%rip)
1:
	movl	GUMP_M_X87CW(%r12), %edx
	cmpl	gumpStartX87cw(%rip), %edx
	je	gumpGostart
	fldcw	gumpStartX87cw(%rip)
	jmp	gumpGostart

.Lexit:						/* leave the scheduler: g0's own frame */
	CFI_SAVED_FRAME
	ldmxcsr	(%rsp)
	fldcw	4(%rsp)
	POP_FRAME_AND_RET
	.cfi_endproc
	.size	gumpMcall, .-gumpMcall

/* void gumpSwitch(G* from, G* to, void (*commit)(G*, M*))
 * Switches from goroutine to goroutine without g0. The caller has set to->m to its own M. commit publishes `from`. It
 * runs on the stack of `to`. m.locks becomes 0 only after commit, because until then the M must not be preempted. */
	.globl	gumpSwitch
	.type	gumpSwitch, @function
	.p2align 4
gumpSwitch:
	.cfi_startproc
	endbr64
	PUSH_FRAME
	movq	%rsp, GUMP_G_SCHED_SP(%rdi)	/* its context is complete from here on */
	movl	(%rsp), %r13d			/* the current control words */
	movzwl	4(%rsp), %r14d
	movq	%rsi, %rbx
	movq	GUMP_G_M(%rsi), %r12
	movq	%r12, %rsi
	movq	gumpTlsG@gottpoff(%rip), %rax
	movq	%rbx, %fs:(%rax)		/* `to` is now current ... */
	xorl	%ebp, %ebp
	cmpq	$0, GUMP_G_SCHED_FRESH(%rbx)
	jne	.Lswitchfresh
	movq	GUMP_G_SCHED_SP(%rbx), %rsp	/* ... on its stack */
	CFI_SAVED_FRAME
	call	*%rdx
	movl	$0, GUMP_M_LOCKS(%r12)
	xorl	(%rsp), %r13d
	testl	$MXCSR_CONTROL, %r13d
	jnz	.Lswitchmxcsr
.Lswitchmxcsrdone:
	cmpw	%r14w, 4(%rsp)
	jne	.Lswitchx87
.Lswitchx87done:
	.cfi_remember_state
	POP_FRAME_AND_RET
	.cfi_restore_state
.Lswitchmxcsr:
	ldmxcsr	(%rsp)
	jmp	.Lswitchmxcsrdone
.Lswitchx87:
	fldcw	4(%rsp)
	jmp	.Lswitchx87done
.Lswitchfresh:
	CFI_OUTERMOST
	movq	GUMP_G_SCHED_SP(%rbx), %rsp	/* top of an empty stack, 16-byte aligned */
	call	*%rdx
	movl	%r13d, GUMP_M_MXCSR(%r12)
	movl	%r14d, GUMP_M_X87CW(%r12)
	movq	%rbx, %rax
	jmp	.Lfresh
	.cfi_endproc
	.size	gumpSwitch, .-gumpSwitch

/* void gumpMstart(G* g0, G* (*fn)(G*)) */
	.globl	gumpMstart
	.type	gumpMstart, @function
	.p2align 4
gumpMstart:
	.cfi_startproc
	endbr64
	PUSH_FRAME
	movq	%rsp, GUMP_G_SCHED_SP(%rdi)	/* each gumpMcall of this M goes to this frame; .Lexit pops it */
	movq	%rdi, %r12
	movl	(%rsp), %edx
	movl	%edx, GUMP_M_MXCSR(%r12)
	movzwl	4(%rsp), %edx
	movl	%edx, GUMP_M_X87CW(%r12)
	jmp	.Lrun				/* gumpOnG0(g0, fn) */
	.cfi_endproc
	.size	gumpMstart, .-gumpMstart

/* void gumpGostart(): rax = gp, r12 = m, on gp's empty stack */
	.globl	gumpGostart
	.type	gumpGostart, @function
	.p2align 4
gumpGostart:
	.cfi_startproc
	CFI_OUTERMOST
	endbr64
	xorl	%ebp, %ebp
	movq	%rax, %rbx
#ifdef GUMP_SANITIZE
	movq	%rax, %rdi
	call	gumpSanArrive
#endif
	movl	$0, GUMP_M_LOCKS(%r12)		/* preemptible from here on */
	movq	%rbx, %rdi
	/* The first function saves these on the stack, where they stay until the goroutine ends. They have values of the
	   goroutine before, such as addresses in its stack, which would hide leaks (leaks.cc). */
	xorl	%ebx, %ebx
	xorl	%r12d, %r12d
	xorl	%r13d, %r13d
	xorl	%r14d, %r14d
	xorl	%r15d, %r15d
	call	gumpGoroutineMain
	ud2
	.cfi_endproc
	.size	gumpGostart, .-gumpGostart

/* void gumpCallSaved(void (*fn)(G*), G* gp)
 * While fn runs, gp's saved context is that of our caller. It describes the stack that the caller is on, and is never
 * resumed. */
	.globl	gumpCallSaved
	.type	gumpCallSaved, @function
	.p2align 4
gumpCallSaved:
	.cfi_startproc
	endbr64
	PUSH_FRAME
	movq	%rsp, GUMP_G_SCHED_SP(%rsi)
	movq	%rdi, %rax
	movq	%rsi, %rdi
	call	*%rax
	POP_FRAME_AND_RET
	.cfi_endproc
	.size	gumpCallSaved, .-gumpCallSaved

/* void gumpCallAtop(uintptr_t sp, void (*fn)(void*), void* arg)
 * fn runs on our own stack, but an unwinder goes on from it to the frame saved at sp, and so to the function that saved
 * that frame. */
	.globl	gumpCallAtop
	.type	gumpCallAtop, @function
	.p2align 4
gumpCallAtop:
	.cfi_startproc
	endbr64
	PUSH_FRAME
	movq	%rdi, %rbx
	.cfi_remember_state
	.cfi_def_cfa %rbx, 64
	movq	%rdx, %rdi
	call	*%rsi
	.cfi_restore_state
	POP_FRAME_AND_RET
	.cfi_endproc
	.size	gumpCallAtop, .-gumpCallAtop

	.section .note.GNU-stack,"",@progbits
