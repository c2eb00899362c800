"""Images in blocks of channels, from one convolution to the next.

Reading order: layout, layout_ops, layout_forms. Treated in course chapter 02_frontend_opt.
"""
