/* The offsets that asm_*.S needs. asm_offsets.cc asserts each against the C++
 * types. */
#ifndef RUNTIME_SYS_ASM_OFFSETS_H_
#define RUNTIME_SYS_ASM_OFFSETS_H_

#define GUMP_G_SCHED_SP 0
#define GUMP_G_SCHED_FRESH 8
#define GUMP_G_M 16
#define GUMP_M_G0 0
#define GUMP_M_MXCSR 256
#define GUMP_M_X87CW 260
#define GUMP_M_LOCKS 296

#endif /* RUNTIME_SYS_ASM_OFFSETS_H_ */
