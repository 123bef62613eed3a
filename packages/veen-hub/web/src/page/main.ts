import { byId, el } from "../ui/dom.ts";

byId("main").append(el("p", {}, "Drop a file here."));
