"""Which ops run in one kernel, in three styles, and what each decision saves.

Reading order: fusion_groups, fuse, fusion_costs, fusion_plan, fuse_xla, fuse_stitch,
merge_products, graph_kernel. Treated in course chapter 02_frontend_opt.
"""
