"""The SIMT engine: runs an unmodified numba.cuda kernel on the CPU, 32 lanes in lock step, and counts what the hardware would count.

engine.execute is the door: a kernel's IR and its bound arguments in, an EngineRun out. A kernel goes through the stages from top to
bottom; each file is named once, where it works.

front end   frontend       numba's compiler -> KernelIR: unoptimised NVPTX IR as text, cached; the only one who knows that compiler
            no_device, type_errors, type_hints, frozen   numba without a GPU; its errors in a learner's words; changed globals
            arguments, captured, device_memory           what the caller gives -> BoundArguments: numbers, and arrays by address
optimise    optimise       O3 as NVVM would have it, lightly for the checks; multiply and add fused; which array a pointer may point into
            merged         neighbouring shared accesses that are one instruction on a GPU
            marks, overflow, ranges, local_arrays   for the checks: what optimised code no longer shows, as calls and values of the kernel's own
            bodies, half, libdevice, arrays, special     LLVM bodies for functions that a GPU's libraries define
ir          ir_text, ir_tokens   LLVM's printed IR -> records
            ir             those records, and types
            recursion      recursive calls -> jumps and a stack in local memory
cfg         cfg            blocks, execution order, what differs between lanes, who waits where, what is live
            graph          dominators, loops, orders: graphs of numbers
emit        emit           the warp's code as LLVM IR: control flow, block after block
            values, memory, parking   its base classes: values and slots; loads, stores, atomics; barriers and waiting loops
            ops, calls     a small function per instruction, a row per intrinsic and library function
            strides        how far apart the lanes of an access are, as far as the program says
            access, lanes, pieces     the LLVM functions that this code calls, and the pieces they are written with
            plan           what the machine must know of the code
            observe, costs, predicated   what is counted as blocks run; what an operation costs on a GPU; ifs without a branch
            driver         the generated loop around warps: blocks, phases between barriers, rounds of waiting
            runtime, miss   code that is the same for all kernels: a new lane pattern (sectors, wavefronts), a stray access
            layout         every offset in the memory that generated code and machine share
compile     compiler       leads a kernel through optimise ... emit -> Compiled: native code, and all that is static about it
checks      shadow         what the checks build calls at each access, barrier and meeting of lanes: the definition of a hazard
            checking       the shadow memory of a launch; what was seen, as records
machine     machine        threads, their memory, the launch, raw counters back
            resident       blocks that wait for each other: which goes on, and when none ever can
            addressable, pool, recording, printing   the arrays of a launch; memory kept between launches; the Trace; print()
engine      engine, counting, faults   one launch; raw counters -> counts by site and line; what went wrong -> the learner's error
            hazards, declared   what the checks saw -> Findings; names and shapes of the arrays that a kernel's source declares
            strays, remedies, sources   a stray access in a learner's words; what to do about a hazard; what the kernel's own text says about it
            records        what comes of it: the definition of every count

To add an intrinsic, a library function or a piece of inline assembly: one row in calls.py (CALLS; FAMILIES when its name ends in a
type), and one test against NumPy or the PTX definition: tests/engine/test_language_libdevice.py for numbers, test_language_cooperation.py
for warps. Where it may be defined by others: a row in libdevice.py. If it computes, a row in costs.py says what it costs.
If its result differs between lanes though its operands do not, compiler._varies must say so.
"""
