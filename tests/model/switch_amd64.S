/* void modelSwitch(void** save, void* to): leaves a virtual thread's stack for another, and stores the old top in *save. */
	.text
	.globl	modelSwitch
	.type	modelSwitch, @function
modelSwitch:
	endbr64
	pushq	%rbp
	pushq	%rbx
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	movq	%rsp, (%rdi)
	movq	%rsi, %rsp
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbx
	popq	%rbp
	ret
	.size	modelSwitch, .-modelSwitch

	.section	.note.GNU-stack,"",@progbits
