import time, cProfile, pstats
from .scripted_run import *
from .faulty_files import *
from .oracle import *
import veen_storage.fsck as F
def test_a():
    print(fsck)
    with memory_folder() as f:
        run=Run(f/"hub",CountingFiles()); run.play()
        for i in range(3):
            t=time.time(); check_files(f/"hub"); print("fsck",time.time()-t)
            t=time.time(); 
            with Store(f/"hub",background=False) as s: 
                print("open",time.time()-t); t=time.time(); examine(s,run.promises); print("examine",time.time()-t); t=time.time()
            print("close",time.time()-t)
        pr=cProfile.Profile(); pr.enable(); check_files(f/"hub"); pr.disable()
        pstats.Stats(pr).sort_stats("cumtime").print_stats(25)
